"""What Numba has no name for, although processors do it in one step."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def zeros_below(typing_context: Any, word: Any) -> Any:
    """How many bits of a uint64 are below the lowest that is set, of which there is one."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code

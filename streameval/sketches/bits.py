"""Bit operations that are one processor instruction but that Numba does not expose."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def zeros_below(typing_context: Any, word: Any) -> Any:
    """The number of trailing zeros of a uint64 that is not 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code

"""What keeps a start short: what was imported is no garbage, and pandas stays out until somebody imports it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def quick_imports() -> Iterator[None]:
    """For the block that imports the program, in a process that is ours.

    Some 500,000 objects come into being, nearly all of them for good. The collector would look through them again and again,
    then and at each full collection after: a fifth of what a short command takes.
    """
    gc.disable()
    try:
        yield
        _spare_pandas()
        gc.freeze()
    finally:
        gc.enable()


def _spare_pandas() -> None:
    """Has pyarrow do without pandas until somebody imports it.

    To know a Series when it is given one, pyarrow imports pandas at the first array, where it is installed (and River needs
    it). That is an eighth of a start, for nothing: as long as nobody has imported pandas, nobody has a Series.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        finder.hides = False


class _Finder(MetaPathFinder):
    """Finds no pandas as long as it `hides` it. Afterwards pyarrow looks for it again once somebody has imported it."""

    hides = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.hides:
            raise ModuleNotFoundError("pandas is not looked for", name=fullname)
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            self._tell(spec.loader)
        return spec

    def _tell(self, loader: Any) -> None:
        """Pyarrow, once this has loaded pandas."""
        load = loader.exec_module

        def load_and_tell(module: ModuleType) -> None:
            import pyarrow as pa

            load(module)
            sys.meta_path.remove(self)
            with suppress(ImportError):  # it is too old for pyarrow, which does without
                pa.nulls(0).to_pandas()  # what needs pandas has it looked for again

        loader.exec_module = load_and_tell

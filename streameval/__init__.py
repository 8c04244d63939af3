"""streameval: how good click models are, from a table, in your own loop, or from live traffic.

    import streameval

    result = streameval.evaluate(table, label="clicked", score="pclick", user="user_id")

docs/python.md has the rest. Nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.process.kernel_cache import make_cache_safe

if TYPE_CHECKING:
    from streameval.face.evaluate import evaluate
    from streameval.face.histogram import Certified, ScoreHistogram
    from streameval.face.monitor import Monitor
    from streameval.face.result import Evaluation

__version__ = "0.1.0"
__all__ = ["Certified", "Evaluation", "Monitor", "ScoreHistogram", "__version__", "evaluate"]

make_cache_safe(Path(__file__).parent)

_WHERE = {
    "evaluate": "evaluate",
    "Evaluation": "result",
    "Monitor": "monitor",
    "ScoreHistogram": "histogram",
    "Certified": "histogram",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"streameval.face.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

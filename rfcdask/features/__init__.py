"""Feature maps: scikit-learn transformers whose inner products approximate a kernel.

They are imported when they are first used: their names (:mod:`rfcdask.features.methods`) are
offered by the command line, whose ``--help`` must not wait for numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.features.compressed import CompressedFeatures
    from rfcdask.features.nystroem import NystroemFeatures
    from rfcdask.features.random import JLFeatures, RandomFeatures

__all__ = ["CompressedFeatures", "JLFeatures", "NystroemFeatures", "RandomFeatures"]

_HOME = {
    "CompressedFeatures": "compressed",
    "JLFeatures": "random",
    "NystroemFeatures": "nystroem",
    "RandomFeatures": "random",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

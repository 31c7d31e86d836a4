"""Feature maps: scikit-learn transformers whose inner products approximate a kernel.

They are imported when they are first used: their names (:mod:`rfcdask.features.methods`) are
offered by the command line, whose ``--help`` must not wait for numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.features.baselines import JLFeatures, NystroemFeatures, RandomFeatures
    from rfcdask.features.compressed import CompressedFeatures

__all__ = ["CompressedFeatures", "JLFeatures", "NystroemFeatures", "RandomFeatures"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "compressed" if name == "CompressedFeatures" else "baselines"
    return getattr(import_module(f"{__name__}.{home}"), name)

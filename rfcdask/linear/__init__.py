"""Linear models on any dask array, in memory that does not depend on the number of rows.

Names are imported when they are first used: a worker that learns from blocks needs no estimator,
and without scikit-learn it starts in less time and memory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.linear.kernel.estimators import KernelClassifier, KernelRegressor
    from rfcdask.linear.pca import PCA
    from rfcdask.linear.ridge import Ridge, RidgeClassifier
    from rfcdask.linear.sgd.estimators import SGDClassifier, SGDRegressor
    from rfcdask.linear.write import write_zarr

__all__ = [
    "PCA",
    "KernelClassifier",
    "KernelRegressor",
    "Ridge",
    "RidgeClassifier",
    "SGDClassifier",
    "SGDRegressor",
    "write_zarr",
]

_HOME = {
    "PCA": "pca",
    "KernelClassifier": "kernel.estimators",
    "KernelRegressor": "kernel.estimators",
    "Ridge": "ridge",
    "RidgeClassifier": "ridge",
    "SGDClassifier": "sgd.estimators",
    "SGDRegressor": "sgd.estimators",
    "write_zarr": "write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

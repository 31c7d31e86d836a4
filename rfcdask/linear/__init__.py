"""Linear models on any dask array, in memory that does not depend on the number of rows."""

from rfcdask.linear.kernel.classifier import KernelClassifier
from rfcdask.linear.kernel.regressor import KernelRegressor
from rfcdask.linear.pca import PCA
from rfcdask.linear.ridge import Ridge, RidgeClassifier
from rfcdask.linear.sgd import SGDClassifier, SGDRegressor
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

"""Linear models on any dask array, in memory that does not depend on the number of rows.

Names are imported when they are first used: a worker that learns from blocks needs no estimator,
and without scikit-learn it starts in less time and memory. Commands read the names of the metrics,
which stand here for that reason.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.linear.kernel.estimators import KernelClassifier, KernelRegressor
    from rfcdask.linear.ridge import Ridge, RidgeClassifier
    from rfcdask.linear.sgd.estimators import SGDClassifier, SGDRegressor
    from rfcdask.linear.transform import PCA
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
    "PCA": "transform",
    "KernelClassifier": "kernel.estimators",
    "KernelRegressor": "kernel.estimators",
    "Ridge": "ridge",
    "RidgeClassifier": "ridge",
    "SGDClassifier": "sgd.estimators",
    "SGDRegressor": "sgd.estimators",
    "write_zarr": "write",
}

SCORERS = {
    name: (name, 1)
    for name in (
        "accuracy",
        "balanced_accuracy",
        "f1_macro",
        "f1_weighted",
        "precision_macro",
        "recall_macro",
        "roc_auc",
        "average_precision",
        "r2",
    )
} | {
    "roc_auc_ovr": ("roc_auc", 1),
    "neg_log_loss": ("log_loss", -1),
    "neg_brier_score": ("brier_score", -1),
    "neg_mean_absolute_error": ("mean_absolute_error", -1),
    "neg_mean_squared_error": ("mean_squared_error", -1),
    "neg_root_mean_squared_error": ("root_mean_squared_error", -1),
}
"""scikit-learn's names of scorers: which value of an `Evaluation`, and its sign."""
OF_NUMBERS = {name for name, (value, _) in SCORERS.items() if value == "r2" or "mean" in value}
"""Those that are for numbers, the others being for classes."""


OF_PROBABILITIES = ("neg_log_loss", "neg_brier_score")


def check_scoring(name: str | None, *, numbers: bool, without_probabilities: str = "") -> str:
    """Return the name of a scorer that goes with the labels, or say which ones there are.

    `without_probabilities` names models that have none, where such are judged.
    """
    if name is None:
        return "r2" if numbers else "accuracy"
    known = [n for n in SCORERS if (n in OF_NUMBERS) == numbers]
    if name not in known:
        what = "numbers" if numbers else "classes"
        raise ValueError(f"scoring={name!r} must be one for {what}: {', '.join(known)}.")
    if without_probabilities and name in OF_PROBABILITIES:
        raise ValueError(
            f"scoring={name!r} needs probabilities, which {without_probabilities} have not: choose "
            "another, such as 'roc_auc'."
        )
    return name


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

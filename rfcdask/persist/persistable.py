"""Which classes may be saved, by name: only these are ever made from a file."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def _lazily(module: str, name: str) -> Callable[[], Callable[..., Any]]:
    """Import the class only when a file asks for it."""

    def find() -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    return find


PERSISTABLE: dict[str, Callable[[], Callable[..., Any]]] = {
    "RandomFeatures": _lazily("rfcdask.features.random", "RandomFeatures"),
    "CompressedFeatures": _lazily("rfcdask.features.compressed", "CompressedFeatures"),
    "JLFeatures": _lazily("rfcdask.features.random", "JLFeatures"),
    "NystroemFeatures": _lazily("rfcdask.features.nystroem", "NystroemFeatures"),
    "SGDClassifier": _lazily("rfcdask.linear.sgd", "SGDClassifier"),
    "SGDRegressor": _lazily("rfcdask.linear.sgd_regressor", "SGDRegressor"),
    "Ridge": _lazily("rfcdask.linear.ridge", "Ridge"),
    "RidgeClassifier": _lazily("rfcdask.linear.ridge_classifier", "RidgeClassifier"),
    "Standardizer": _lazily("rfcdask.linear.standardize", "Standardizer"),
    "PCA": _lazily("rfcdask.linear.pca", "PCA"),
    "Moments": _lazily("rfcdask.linear.moments", "Moments"),
    "ErrorPath": _lazily("rfcdask.features.paths", "ErrorPath"),
    "RefinePath": _lazily("rfcdask.features.paths", "RefinePath"),
}


def is_pipeline(obj: Any) -> bool:
    """Tell whether this is scikit-learn's Pipeline, whose steps are saved one by one."""
    from sklearn.pipeline import Pipeline

    return type(obj) is Pipeline


def check_class(obj: Any) -> None:
    """Raise a TypeError that lists what can be saved when `obj` is none of it."""
    if is_pipeline(obj):
        for _, step in obj.steps:
            check_class(step)
        return
    name = type(obj).__name__
    if name not in PERSISTABLE or PERSISTABLE[name]() is not type(obj):
        raise TypeError(
            f"Cannot save a {name}; save one of {', '.join(PERSISTABLE)}, or a Pipeline of them."
        )

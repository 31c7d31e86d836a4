"""Whether the parts of a saved model fit each other, seen before anybody predicts with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import psutil

_COSINES = {"frequencies_": "pj", "phases_": "j", "weights_": "j"}
_LINEAR = {"coef_": "kp", "intercept_": "k"}
_KERNEL_MODEL = _COSINES | {"coef_": "kj", "intercept_": "k"}
_SHAPES: dict[str, dict[str, str]] = {
    "RandomFeatures": _COSINES,
    "CompressedFeatures": _COSINES,
    "LearnedFeatures": _COSINES,
    "JLFeatures": {},
    "NystroemFeatures": {"landmarks_": "jp", "normalization_": "jr"},
    "Standardizer": {"mean_": "p", "deviation_": "p"},
    "PCA": {"mean_": "p", "components_": "qp", "explained_variance_": "q"},
    "Ridge": _LINEAR,
    "RidgeClassifier": _LINEAR,
    "SGDClassifier": _LINEAR,
    "SGDRegressor": _LINEAR,
    "KernelClassifier": _KERNEL_MODEL,
    "KernelRegressor": _KERNEL_MODEL,
}
"""The arrays that predicting needs and their shapes; the same letter is the same number.

p are columns, j features, k outputs: none of a model for a single target, one for two classes.
"""
_SCALARS = {
    "RandomFeatures": ("gamma_", "seed_"),
    "JLFeatures": ("gamma_", "seed_", "n_components_"),
    "NystroemFeatures": ("gamma_",),
    "KernelClassifier": ("gamma_", "seed_"),
    "KernelRegressor": ("gamma_", "seed_"),
    "PCA": ("n_components_",),
}


def check_state(model: Any, state: dict[str, Any]) -> None:
    """Raise a ValueError unless learned values are those of a model that was fitted.

    Parameters
    ----------
    model : estimator
        With its parameters, and without what it learned.
    state : dict
        What it learned; empty for a model that was never fitted.
    """
    name = type(model).__name__
    for key, value in state.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key} is {value}, not a finite number")
    if not state or name not in _SHAPES:
        return
    if hasattr(model, "_parameter_constraints"):
        model._validate_params()
    elif hasattr(model, "_check_parameters"):
        model._check_parameters()
    for key in ("n_features_in_", *_SCALARS.get(name, ())):
        value = state.get(key, -1)
        kinds = (int, float) if key == "gamma_" else (int,)
        whole = isinstance(value, int) and key == "gamma_" and value > 2**53
        if type(value) not in kinds or value < 0 or (key != "seed_" and value == 0) or whole:
            raise ValueError(f"{key} is {value!r}")
    sizes: dict[str, tuple[Any, ...]] = {
        "p": (state["n_features_in_"],),
        "q": (state.get("n_components_"),),
    }
    if name.endswith("Classifier"):
        sizes["k"] = _n_outputs(state.get("classes_"))
    elif len(getattr(state.get("coef_"), "shape", ())) == 1:
        sizes["k"] = ()  # a single target: neither coef_ nor intercept_ has that side
    for key, letters in _SHAPES[name].items():
        _check_shape(key, state.get(key), letters, sizes)
    _check_shown(state)
    if "calibration_" in state:
        _check_calibration(state["calibration_"], state["coef_"].shape[0])
    if name == "JLFeatures":
        _check_drawn(state["n_features_in_"], state["n_components_"], int(model.n_candidates))


def _check_shown(state: dict[str, Any]) -> None:
    """Refuse what is only shown, where showing it would fail."""
    history = state.get("history_", [{}])
    if not (isinstance(history, list) and history and all(isinstance(e, dict) for e in history)):
        raise ValueError("history_ is no list of what each epoch gave")
    if not isinstance(state.get("error_path_", ()), tuple):
        raise ValueError("error_path_ is no path of errors")
    ratio = state.get("explained_variance_ratio_", np.zeros(1))
    if not isinstance(ratio, np.ndarray) or ratio.ndim != 1 or ratio.dtype.kind != "f":
        raise ValueError("explained_variance_ratio_ is no list of numbers")


def _n_outputs(classes: Any) -> tuple[int, ...]:
    """Return how many outputs there may be: softmax has two for two classes."""
    listed = isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 1
    if not listed or len(np.unique(classes)) < len(classes):
        raise ValueError("classes_ is no list of two or more different labels")
    return (1, 2) if len(classes) == 2 else (len(classes),)


def _check_shape(key: str, value: Any, letters: str, sizes: dict[str, tuple[Any, ...]]) -> None:
    """Compare a shape with what is known of its sides, and note what is learned from it."""
    shape = getattr(value, "shape", ())
    sides = [letter for letter in letters if sizes.get(letter) != ()]
    numeric = getattr(value, "dtype", np.dtype(type(value))).kind in "biuf"
    if len(shape) != len(sides) or not numeric or isinstance(value, bool):
        raise ValueError(f"{key} is missing or has shape {shape}")
    for side, letter in zip(shape, sides, strict=True):
        if side not in sizes.setdefault(letter, (side,)):
            raise ValueError(f"{key} has shape {shape}, which does not fit the other arrays")
        sizes[letter] = (side,)


def _check_calibration(found: Any, n_outputs: int) -> None:
    """Refuse a calibration that has not the corners of each output, or none at all."""
    method, scores, values, ends = found
    arrays = [np.asarray(part) for part in (scores, values, ends)]
    steps = np.diff(arrays[2], prepend=0)
    fits = (
        method in ("sigmoid", "isotonic")
        and all(part.ndim == 1 and part.dtype.kind in "iuf" for part in arrays)
        and len(steps) == n_outputs
        and steps.min() > 0
        and arrays[0].shape == arrays[1].shape == (arrays[2][-1],)
    )
    if not fits:
        raise ValueError("calibration_ does not fit the other arrays")


def _check_drawn(n_columns: int, n_features: int, n_candidates: int) -> None:
    """Refuse a projection that is drawn anew from its seed, and would not fit the memory."""
    size, memory = n_columns * n_candidates * 8, psutil.virtual_memory().total
    if size > memory:
        raise ValueError(f"it asks for {size:,} bytes, more than the {memory:,} of memory")
    if n_features > n_candidates:
        raise ValueError(f"n_components_ is {n_features}, more than n_candidates={n_candidates}")

"""What a saved model knows: parameters as JSON, and whether its parts fit each other."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from rfcdask.kernels import KERNELS, Kernel
from rfcdask.kernels.arrays import Array
from rfcdask.persist.untrusted import require_memory

_LIST_BYTES = 2**26  # most bytes of an array that ``model.json`` itself holds
_TEXT_BYTES = 2**28  # most bytes of an array of names


def check_head(record: dict[str, Any], known: Collection[str]) -> None:
    """Raise a ValueError unless a record says of a model what all of them say.

    `known` are the names of classes that may be saved.
    """
    kind, version = record.get("class"), record.get("version")
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"class is {kind!r}, which is none that this version knows")
    name, needed = ("steps", list) if kind == "Pipeline" else ("parameters", dict)
    for key, value, type_ in (("version", version, str), (name, record.get(name), needed)):
        if not isinstance(value, type_):
            raise ValueError(f"{key} is {str(value)[:40]!r}")


def encode(name: str, value: Any) -> Any:
    """Return a parameter, or a learned value that is no array, as JSON can hold it."""
    if name == "checkpoint":
        return None  # a file of the machine that trained, which nobody else's fit shall write
    if isinstance(value, Kernel) and value is KERNELS.get(value.name):
        return value.name
    if isinstance(value, Kernel):
        raise ValueError(
            f"{name}={value.name!r} is a kernel of your own, which cannot be saved without pickle; "
            "save frequencies_, phases_ and weights_ yourself."
        )
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # what it drew is in seed_
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"list": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, (list, tuple)):
        return [encode(name, item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):  # JSON would make strings of the keys
        return {"items": [[encode(name, k), encode(name, v)] for k, v in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{name}={value!r} cannot be saved without pickle; use numbers or strings.")


def decode(value: Any) -> Any:
    """Return what :func:`encode` was given."""
    if isinstance(value, dict) and set(value) == {"list", "dtype"}:
        return _listed(value["list"], value["dtype"])
    if isinstance(value, dict) and set(value) == {"items"}:
        return {decode(k): decode(v) for k, v in value["items"]}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value


def _listed(values: Any, dtype: str) -> Array:
    """Return an array that was written as a list, unless its type makes it absurdly large."""
    plain, kind = _array_of(values), np.dtype(dtype)
    if kind.kind not in "biufcUS" or plain.size * kind.itemsize > _LIST_BYTES:
        raise ValueError(
            f"a list of {plain.size} values of type {dtype} is refused: numbers and text of at "
            f"most {_LIST_BYTES:,} bytes are read"
        )
    return plain.astype(kind)


def text_array(values: Any) -> Array:
    """Return an array of a list of text."""
    found = _array_of(values)
    if found.size and found.dtype.kind != "U":
        raise ValueError(f"text was expected, and {found.dtype} was found")
    return found


def _array_of(values: Any) -> Array:
    """Return an array of a list; numpy gives every text in it the room of the longest one."""
    lengths = [len(leaf) if isinstance(leaf, str) else 0 for leaf in _leaves(values)]
    size = 4 * len(lengths) * max(lengths, default=0)
    if size > _TEXT_BYTES:
        raise ValueError(
            f"{len(lengths):,} texts of up to {max(lengths):,} characters take {size:,} bytes, the "
            f"most is {_TEXT_BYTES:,}: give columns and classes shorter names"
        )
    return np.array(values)


def _leaves(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, list) else [values]:
        yield from _leaves(value) if isinstance(value, list) else (value,)


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

_SHOWN = {
    "CompressedFeatures": ("error_path_", "heldout_error_"),
    "Ridge": ("alpha_", "path_"),
    "RidgeClassifier": ("alpha_", "path_"),
    "PCA": ("n_samples_", "explained_variance_ratio_"),
}
"""What a notebook shows of a model, and nothing else needs."""
_SCALARS = {
    "RandomFeatures": ("gamma_", "seed_"),
    "JLFeatures": ("gamma_", "seed_", "n_components_"),
    "NystroemFeatures": ("gamma_",),
    "KernelClassifier": ("gamma_", "seed_"),
    "KernelRegressor": ("gamma_", "seed_"),
    "PCA": ("n_components_",),
}


_SCALERS: dict[str, dict[str, str | None]] = {
    "StandardScaler": {"mean_": "with_mean", "scale_": "with_std"},
    "MinMaxScaler": {"min_": None, "scale_": None},
    "RobustScaler": {"center_": "with_centering", "scale_": "with_scaling"},
    "MaxAbsScaler": {"scale_": None},
}
"""Those of scikit-learn: a number for each column, unless a parameter leaves that out."""


def _scaler_shapes(model: Any) -> dict[str, str]:
    parts = _SCALERS[type(model).__name__]
    return {key: "p" for key, flag in parts.items() if flag is None or getattr(model, flag)}


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
    for key, value in (vars(model) | state).items():
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError(f"{key} is a whole number that no float holds")
    for key, value in state.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key} is {value}, not a finite number")
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
        if numbers and not np.isfinite(value).all():
            raise ValueError(f"{key} holds values that are not finite")
    shapes = _scaler_shapes(model) if name in _SCALERS else _SHAPES.get(name)
    if not state or shapes is None:
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
    for key, letters in shapes.items():
        _check_shape(key, state.get(key), letters, sizes)
    if name in _SCALERS and not np.all(state.get("scale_", 1) != 0):
        raise ValueError("scale_ is zero")
    # They are divided by, and roots are taken of them.
    for key, least in (("deviation_", 5e-324), ("weights_", 0)):
        if key in shapes and np.min(state[key], initial=1) < least:
            raise ValueError(f"{key} holds {np.min(state[key])}")
    _check_shown(state, _SHOWN.get(name, ()))
    for key in ("columns_", "feature_names_in_"):
        if state.get(key) is not None and np.shape(state[key]) != (state["n_features_in_"],):
            raise ValueError(f"{key} are not the names of all columns")
    if "target_scale_" in state:
        _check_units(state, np.size(state["intercept_"]))
    if "calibration_" in state:
        _check_calibration(state["calibration_"], state["coef_"].shape[0])
    if name == "JLFeatures":
        _check_drawn(state["n_features_in_"], state["n_components_"], int(model.n_candidates))


def checked_steps(steps: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline, after a look whether each hands rows on to the next."""
    for name, step in steps[:-1]:
        if not hasattr(step, "transform"):
            raise ValueError(f"its step {name!r} has no transform, and others come after it")
    return steps


def _check_shown(state: dict[str, Any], needed: Sequence[str]) -> None:
    """Refuse what is only shown, where showing it would fail."""
    for key in needed:
        if key not in state:
            raise ValueError(f"{key} is missing")
    for key, names in ("history_", ("epoch", "loss")), ("path_", ("alpha", "held_out_error")):
        listed = state.get(key, [dict.fromkeys(names, 0)])
        whole = isinstance(listed, list) and all(_has_numbers(entry, names) for entry in listed)
        if not whole or (key == "history_" and not listed):
            raise ValueError(f"{key} is no list of what each {names[0]} gave")
    for key in ("n_iter_", "alpha_") if "history_" in state else ():
        if type(state.get(key)) not in (int, float):
            raise ValueError(f"{key} is {state.get(key)!r}")
    for key in ("error_path_", "refine_path_"):
        path = state.get(key, ())
        path = () if path is None and key == "refine_path_" else path
        sides = [_n_numbers(part) for part in path] if isinstance(path, tuple) else [None]
        if None in sides or (key == "error_path_" and sides[:1] == [0]):
            raise ValueError(f"{key} is no path of errors")
    if "moments_" in state and not hasattr(state["moments_"], "rows"):
        raise ValueError("moments_ are no moments")
    ratio = state.get("explained_variance_ratio_", np.zeros(1))
    if not isinstance(ratio, np.ndarray) or ratio.ndim != 1 or ratio.dtype.kind != "f":
        raise ValueError("explained_variance_ratio_ is no list of numbers")


def _n_numbers(part: Any) -> int | None:
    plain = isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iuf"
    return len(part) if plain else None


def _has_numbers(entry: Any, names: Collection[str]) -> bool:
    known = [entry.get(name) for name in names] if isinstance(entry, dict) else [None]
    # Whole numbers that no float holds cannot be drawn.
    return all(type(v) is float or (type(v) is int and abs(v) < 2**53) for v in known)


def _n_outputs(classes: Any) -> tuple[int, ...]:
    """Return how many outputs there may be: softmax has two for two classes."""
    listed = isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 1
    if not listed or not np.array_equal(np.unique(classes), classes):  # which are looked up
        raise ValueError("classes_ is no list of two or more different labels, sorted")
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


def _check_units(state: dict[str, Any], n_targets: int) -> None:
    """Refuse units of targets that are not one mean and one scale above 0 for each."""
    arrays = [np.asarray(state.get(key)) for key in ("target_mean_", "target_scale_")]
    shaped = all(part.shape == (n_targets,) and part.dtype.kind == "f" for part in arrays)
    if not (shaped and np.isfinite(arrays).all() and np.all(arrays[1] > 0)):
        raise ValueError("target_mean_ and target_scale_ do not fit the other arrays")


def _check_calibration(found: Any, n_outputs: int) -> None:
    """Refuse a calibration that has not the corners of each output, or none at all."""
    method, scores, values, ends = found
    arrays = [np.asarray(part) for part in (scores, values, ends)]
    steps = np.diff(arrays[2], prepend=0)
    fits = (
        method in ("sigmoid", "isotonic")
        and all(part.ndim == 1 and part.dtype.kind in "iuf" for part in arrays)
        and all(np.isfinite(part).all() for part in arrays)
        and len(steps) == n_outputs
        and steps.min() > 0
        and arrays[0].shape == arrays[1].shape == (arrays[2][-1],)
    )
    if not fits:
        raise ValueError("calibration_ does not fit the other arrays")


def _check_drawn(n_columns: int, n_features: int, n_candidates: int) -> None:
    """Refuse a projection that is drawn anew from its seed, and would not fit the memory."""
    require_memory(n_columns * n_candidates * 8, "it asks for")
    if n_features > n_candidates:
        raise ValueError(f"n_components_ is {n_features}, more than n_candidates={n_candidates}")

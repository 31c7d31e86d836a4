"""Parameters of models as JSON, and back: numbers, text, lists, dictionaries and small arrays."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rfcdask.kernels import KERNELS, Kernel
from rfcdask.kernels.arrays import Array

_LIST_BYTES = 2**26  # most bytes of an array that ``model.json`` itself holds


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
    plain, kind = np.array(values), np.dtype(dtype)
    if kind.kind not in "biufcUS" or plain.size * kind.itemsize > _LIST_BYTES:
        raise ValueError(
            f"a list of {plain.size} values of type {dtype} is refused: numbers and text of at "
            f"most {_LIST_BYTES:,} bytes are read"
        )
    return plain.astype(kind)

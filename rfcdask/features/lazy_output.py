"""Keeping the output of transformers lazy: scikit-learn's `set_output` would compute it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import dask.array as da

Kind = TypeVar("Kind", bound=type)


def lazy_on_dask(kind: Kind) -> Kind:
    """Let `transform` and `fit_transform` of a class return dask arrays as they are.

    With ``set_output(transform="pandas")`` scikit-learn makes a data frame of whatever comes out,
    and of a lazy array it would make one of all rows in memory.
    """
    for name in ("transform", "fit_transform"):
        setattr(kind, name, _lazily(getattr(kind, name)))
    return kind


def _lazily(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(wrapped, "__wrapped__", wrapped)  # without what scikit-learn put around it

    @wraps(wrapped)
    def method(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = plain if isinstance(X, da.Array) else wrapped
        return chosen(self, X, *args, **kwargs)

    return method

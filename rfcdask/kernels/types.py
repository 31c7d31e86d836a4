"""Names for the types that every module speaks of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
# Any to the type checker: scipy's CSR classes and dask arrays have incomplete stubs, and a union
# of them with plain arrays could not be narrowed again.
CSR: TypeAlias = Any
DaskArray: TypeAlias = Any
Matrix: TypeAlias = Any
"""A plain array or a CSR array."""
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
"""What scikit-learn takes as ``random_state``, and a Generator."""

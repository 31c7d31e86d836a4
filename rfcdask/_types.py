"""Names for the array types that every module speaks of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
# scipy's CSR classes and dask arrays are Any to the type checker: their stubs are incomplete.
CSR: TypeAlias = Any
DaskArray: TypeAlias = Any

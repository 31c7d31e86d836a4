"""Names for the types that every module speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
if TYPE_CHECKING:  # nothing here imports Dask
    import dask.array
    import scipy.sparse as sp

    DaskArray: TypeAlias = dask.array.Array
    CSR: TypeAlias = sp.csr_array[Any] | sp.csr_matrix[Any]
    Matrix: TypeAlias = Array | CSR
else:
    DaskArray = CSR = Matrix = Any
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
"""What scikit-learn takes as ``random_state``, and a Generator."""

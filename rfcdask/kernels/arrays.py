"""Arrays: names of their types, and what every block of rows is asked: CSR or dense, all finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
if TYPE_CHECKING:  # nothing here imports Dask
    import dask.array
    from typing_extensions import TypeIs

    DaskArray: TypeAlias = dask.array.Array
    CSR: TypeAlias = sp.csr_array[Any] | sp.csr_matrix[Any]
    Matrix: TypeAlias = Array | CSR
else:
    DaskArray = CSR = Matrix = Any
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
"""What scikit-learn takes as ``random_state``, and a Generator."""
LEAST_SQUARE = 1e-290
"""Sums of squares below this have lost digits, or are 0 although values differ."""


def is_sparse(X: Any) -> TypeIs[CSR]:
    """Tell whether X is a scipy sparse array or matrix; the blocks of this package are CSR then."""
    return bool(sp.issparse(X))


def as_csr(X: Any) -> Matrix:
    """Return X as it is, or as CSR where it is sparse in another format."""
    return native(X).tocsr() if is_sparse(X) else X


def native(X: Any) -> Any:
    """Return X, where it is sparse in this machine's order of bytes: scipy knows no other."""
    if not is_sparse(X) or X.dtype.isnative:
        return X
    return X.astype(X.dtype.newbyteorder("="))


def to_dense(X: Matrix) -> Array:
    """Return X as a plain array."""
    return np.asarray(X.todense()) if is_sparse(X) else np.asarray(X)


def check_sparse(X: Any, name: str = "X") -> None:
    """Raise where compressed rows or columns point beyond what there is.

    scipy does not look at them, and reads and writes foreign memory.
    """
    if getattr(X, "format", None) not in ("csr", "csc", "bsr") or X.ndim != 2:
        return
    sides = [n // size for n, size in zip(X.shape, getattr(X, "blocksize", (1, 1)), strict=True)]
    lines, entries = sides[::-1] if X.format == "csc" else sides
    indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
    what = None
    if indptr.shape != (lines + 1,) or {indptr.dtype.kind, indices.dtype.kind} - {"i", "u"}:
        what = f"indptr has shape {indptr.shape} for {lines} lines, or holds no whole numbers"
    elif indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        what = "indptr does not begin at 0, or falls"
    elif not indptr[-1] <= len(indices) == len(X.data):
        what = f"indptr ends at {indptr[-1]}, of {len(indices)} indices and {len(X.data)} values"
    elif len(indices) and not 0 <= indices.min() <= indices.max() < entries:
        what = f"indices go from {indices.min()} to {indices.max()}, of {entries}"
    if what:
        raise ValueError(f"{name} is a damaged {X.format} matrix: {what}; build it anew.")


def check_block(
    block: Any, place: tuple[slice, ...], block_name: str, kind: str, masked: bool
) -> Any:
    """Return a block of a Dask array, or raise where it is not what the array says of it.

    `kind` is the letter of the array's dtype; `masked` tells whether values may have a mask.
    """
    declared, shape = tuple(part.stop - part.start for part in place), np.shape(block)
    where = f"A block of {block_name} (from row {place[0].start} on)"
    if shape != declared:
        raise ValueError(
            f"{where} has shape {shape} where its Dask array says {declared}: give the chunks that "
            f"it has, which {block_name}.compute_chunk_sizes() finds."
        )
    found = getattr(block, "dtype", np.dtype(object))
    if kind in "fiub" and found.kind not in "fiub":
        raise ValueError(
            f"{where} holds {found} where its Dask array says numbers: make them numbers first."
        )
    if not masked and np.ma.is_masked(block):
        raise ValueError(
            f"{where} has values behind a mask, where its Dask array says none: fill them "
            "(numpy.ma.filled), or leave such rows out."
        )
    check_sparse(block, block_name)
    return native(block)


def feature_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of features of such data: float32 stays, small integers become float32."""
    if dtype.kind in "mM":
        raise ValueError(
            f"X has dtype {dtype}, but real numbers are needed; give X.astype('float32')."
        )
    return np.dtype(np.float64) if dtype.itemsize > 8 else np.result_type(dtype, np.float32)


class NotFiniteError(ValueError):
    """A block held NaN or infinity; carries the row and the column inside the block."""

    def __init__(self, row: int, column: int, value: float, where: str = "") -> None:
        self.row, self.column, self.value = row, column, value
        name, remedy = "infinity", "drop such rows, or replace it by a number, first"
        if np.isnan(value):
            name = "NaN"
            remedy = "drop or fill such rows first (for example with sklearn.impute.SimpleImputer)"
        super().__init__(f"Input X contains {name} at row {row}, column {column}{where}; {remedy}.")

    def in_block(self, index: int) -> NotFiniteError:
        """Return the error that names the block as well, in which the row was counted."""
        if "block" in str(self):
            return self
        return NotFiniteError(self.row, self.column, self.value, f" of block {index}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_remake_not_finite, (self.row, self.column, self.value, str(self)))


def _remake_not_finite(row: int, column: int, value: float, message: str) -> NotFiniteError:
    error = NotFiniteError(row, column, value)
    error.args = (message,)
    return error


def check_finite(X: Matrix, first_row: int = 0, where: str = "") -> None:
    """Raise `NotFiniteError` naming the first row and column of X that is NaN or infinite."""
    values = X.data if is_sparse(X) else X
    if values.dtype.kind != "f" or _sum_is_finite(values):
        return
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):  # finite values whose sum overflowed
        return
    if is_sparse(X):
        entry = int(bad[0, 0])
        row = int(np.searchsorted(np.asarray(X.indptr), entry, side="right")) - 1
        raise NotFiniteError(first_row + row, int(X.indices[entry]), float(values[entry]), where)
    row, column = (int(k) for k in bad[0])
    raise NotFiniteError(first_row + row, column, float(values[row, column]), where)


def _sum_is_finite(values: Array) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):  # infinities may meet, large values add up
        return bool(np.isfinite(values.sum(dtype=np.float64)))


def vary(rows: Matrix) -> bool:
    """Tell whether rows differ, also where the squares of what they differ by are 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread: Any = rows.max(axis=0) - rows.min(axis=0)
    return bool(np.any(spread.toarray() if is_sparse(spread) else spread))


def missing_labels(y: Array) -> Array:
    """Return which labels are None, NaN, NaT, pandas' NA or infinite."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y)
    if y.dtype.kind in "mM":
        return np.isnat(y)
    if y.dtype.kind != "O":
        return np.zeros(y.shape, bool)
    return np.array([_is_missing(value) for value in y.ravel()], bool).reshape(y.shape)


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return not np.isfinite(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")

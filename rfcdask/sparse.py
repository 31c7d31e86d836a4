"""CSR or dense: the one question asked of every block."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from rfcdask._types import Matrix


def is_sparse(X: Any) -> bool:
    """Tell whether X is a scipy sparse array or matrix.

    scipy's own function narrows the type to a class without attributes, which no caller can use.
    """
    return bool(sp.issparse(X))


def as_csr(X: Matrix) -> Matrix:
    """Return X as it is, or as CSR where it is sparse in another format."""
    return X.tocsr() if is_sparse(X) and X.format != "csr" else X

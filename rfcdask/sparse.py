"""CSR or dense: the one question asked of every block."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp


def is_sparse(X: Any) -> bool:
    """Tell whether X is a scipy sparse array or matrix.

    scipy's own function narrows the type to a class without attributes, which no caller can use.
    """
    return bool(sp.issparse(X))

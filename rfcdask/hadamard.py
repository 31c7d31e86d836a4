"""The Walsh-Hadamard transform, which Fastfood and the fast JL map are made of."""

from __future__ import annotations

import numba

from rfcdask._types import Array


def padded_size(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


@numba.njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def hadamard_rows(A: Array) -> None:
    """Apply the unnormalised Walsh-Hadamard transform to each row of `A`, in place.

    The number of columns must be a power of two.
    """
    n, d = A.shape
    for i in range(n):
        half = 1
        while half < d:
            for start in range(0, d, 2 * half):
                for k in range(start, start + half):
                    a, b = A[i, k], A[i, k + half]
                    A[i, k] = a + b
                    A[i, k + half] = a - b
            half *= 2

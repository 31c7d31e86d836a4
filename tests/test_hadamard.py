from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from rfcdask.hadamard import hadamard_rows, padded_size


@pytest.mark.parametrize("n", [1, 2, 4, 64, 512])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_multiplied_by_the_hadamard_matrix(n: int, dtype: type) -> None:
    A = np.random.default_rng(0).normal(size=(7, n)).astype(dtype)
    expected = A.astype(np.float64) @ scipy.linalg.hadamard(n)
    hadamard_rows(A)
    assert A.dtype == dtype
    np.testing.assert_allclose(A, expected, atol=50 * n * np.finfo(dtype).eps)


def test_twice_gives_the_rows_back_times_their_length() -> None:
    A = np.random.default_rng(1).integers(-9, 9, (5, 32)).astype(np.float64)
    twice = A.copy()
    hadamard_rows(twice)
    hadamard_rows(twice)
    np.testing.assert_array_equal(twice, 32 * A)


def test_no_rows_at_all() -> None:
    A = np.empty((0, 8))
    hadamard_rows(A)
    assert A.shape == (0, 8)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (784, 1024)])
def test_padded_size_is_the_next_power_of_two(n: int, size: int) -> None:
    assert padded_size(n) == size

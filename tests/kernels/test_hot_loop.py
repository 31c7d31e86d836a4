from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.kernels import get_kernel, hot_loop
from rfcdask.kernels.arrays import NotFiniteError, check_finite, feature_dtype
from rfcdask.kernels.frequencies import draw_frequencies
from rfcdask.kernels.hot_loop import CosineBlock
from tests.reference import random_csr

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
ATOL = {F32: 1e-5, F64: 2e-13}


def make(
    p: int, n: int, dtype: np.dtype, *, paired: bool = False, seed: int = 0
) -> tuple[CosineBlock, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(p, n)) / np.sqrt(p)
    b, scales = rng.uniform(0, 2 * np.pi, n), rng.uniform(0.1, 1, n)
    return CosineBlock.make(W, b, scales, dtype, paired=paired), W, b, scales


def plain(X: object, W: np.ndarray, b: np.ndarray, s: np.ndarray, paired: bool) -> np.ndarray:
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    angles = dense.astype(np.float64) @ W + b
    return np.hstack([s * np.cos(angles), s * np.sin(angles)]) if paired else s * np.cos(angles)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_values_across_many_tiles(dtype: np.dtype, paired: bool) -> None:
    block, *parameters = make(28, 500, dtype, paired=paired)
    X = np.random.default_rng(1).normal(size=(1003, 28)).astype(dtype)
    assert 1003 % (hot_loop._TILE_BYTES // (500 * dtype.itemsize))  # the last tile is ragged
    found = block(X)
    assert found.dtype == dtype
    assert found.shape == (1003, block.n_outputs)
    assert np.abs(found - plain(X, *parameters, paired)).max() < ATOL[dtype]


@settings(max_examples=80, deadline=None)
@given(
    rows=st.integers(0, 70),
    p=st.integers(1, 20),
    n=st.integers(1, 70),
    dtype=st.sampled_from(["float32", "float64", "uint8", "int8", "int64", "bool", "float16"]),
    layout=st.sampled_from(["C", "F", "strided", "csr_array", "csr_matrix"]),
    paired=st.booleans(),
    n_threads=st.integers(1, 3),
    tile_bytes=st.sampled_from([1, 4096, 1 << 19]),
)
def test_any_shape_dtype_layout_and_tile(
    rows: int,
    p: int,
    n: int,
    dtype: str,
    layout: str,
    paired: bool,
    n_threads: int,
    tile_bytes: int,
) -> None:
    if layout.startswith("csr") and dtype == "float16":
        dtype = "float32"  # scipy has no half-precision sparse arrays
    rng = np.random.default_rng(rows + p + n)
    X = (3 * rng.normal(size=(2 * rows, p))).clip(0 if dtype in ("uint8", "bool") else -9)
    X = X.astype(dtype)[::2]
    X = {
        "C": np.ascontiguousarray,
        "F": np.asfortranarray,
        "strided": np.asarray,
        "csr_array": sp.csr_array,
        "csr_matrix": sp.csr_matrix,
    }[layout](X)
    block, *parameters = make(p, n, feature_dtype(X.dtype), paired=paired)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_loop, "_TILE_BYTES", tile_bytes)
        found = block(X, n_threads)
    assert found.dtype == feature_dtype(X.dtype)
    np.testing.assert_allclose(found, plain(X, *parameters, paired), rtol=0, atol=ATOL[found.dtype])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", "float32"),
        ("float16", "float32"),
        ("uint8", "float32"),
        ("int16", "float32"),
        ("bool", "float32"),
        ("int32", "float64"),
        ("int64", "float64"),
        ("float64", "float64"),
    ],
)
def test_feature_dtype(dtype: str, expected: str) -> None:
    assert feature_dtype(np.dtype(dtype)) == expected


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sparse", [False, True])
def test_number_of_threads_does_not_change_a_bit(
    dtype: np.dtype, paired: bool, sparse: bool
) -> None:
    block, *_ = make(60, 300, dtype, paired=paired)
    X = random_csr(np.random.default_rng(2), (2500, 60), dtype.name)
    X = X if sparse else X.toarray()
    one = block(X)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(block(X, threads), one)


def test_csr_is_not_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise AssertionError("made dense")

    block, *parameters = make(40, 30, F64)
    X = random_csr(np.random.default_rng(3), (50, 40))
    expected = plain(X, *parameters, False)
    for name in ("toarray", "todense"):
        monkeypatch.setattr(sp.csr_array, name, refuse)
    np.testing.assert_allclose(block(X), expected, atol=ATOL[F64])


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("turns", [1.0, 1e3, 1e5])
def test_large_angles_lose_only_what_the_angle_itself_has_lost(
    dtype: np.dtype, turns: float
) -> None:
    v = (turns * np.random.default_rng(4).uniform(-1, 1, (4000, 1))).astype(dtype)
    block = CosineBlock.make(np.full((1, 1), 2 * np.pi), np.zeros(1), np.ones(1), dtype)
    expected = np.cos(2 * np.pi * (v.astype(np.float64) - np.rint(v.astype(np.float64))))
    # x times one turn is x again: the angle is exact, and so must be its reduction.
    assert np.abs(block(v) - expected).max() < (5e-7 if dtype == F32 else 1e-14)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_cosine_and_sine_of_every_angle(dtype: np.dtype) -> None:
    turns = np.linspace(-2, 2, 100_001).astype(dtype)[:, None]
    cosine, sine = np.empty_like(turns), np.empty_like(turns)
    hot_loop.cosine_and_sine(turns, np.zeros(1, dtype), cosine, sine)
    exact = 2 * np.pi * turns.astype(np.float64)
    atol = 5e-7 if dtype == F32 else 2e-15
    assert np.abs(cosine - np.cos(exact)).max() < atol
    # A sine is the cosine a quarter turn before, and that difference is rounded once more.
    assert np.abs(sine - np.sin(exact)).max() < atol + 2 * np.pi * np.finfo(dtype).eps


def test_phases_of_many_turns_are_reduced_before_rounding() -> None:
    W, scales = np.ones((1, 1)), np.ones(1)
    near = CosineBlock.make(W, np.array([0.5]), scales, F32)
    far = CosineBlock.make(W, np.array([0.5 + 2e6 * np.pi]), scales, F32)
    np.testing.assert_allclose(far.phases, near.phases, atol=1e-7)


@pytest.mark.parametrize("which", [slice(3, 9), np.array([8, 0, 5])])
@pytest.mark.parametrize("paired", [False, True])
def test_take_gives_those_columns(which: object, paired: bool) -> None:
    block, *_ = make(6, 11, F64, paired=paired)
    X = np.random.default_rng(5).normal(size=(20, 6))
    whole = np.split(block(X), 2, axis=1) if paired else [block(X)]
    expected = np.hstack([part[:, which] for part in whole])
    np.testing.assert_allclose(block.take(which)(X), expected, atol=1e-14)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_product_form_equals_the_matrix(dtype: np.dtype, sparse: bool, paired: bool) -> None:
    drawn = draw_frequencies(get_kernel("rbf"), 0.1, 13, 50, "fastfood", np.random.default_rng(6))
    scales = np.full(50, 0.2)
    block = CosineBlock.make(
        drawn.vectors, drawn.phases, scales, dtype, paired=paired, structure=drawn.structure
    )
    X = random_csr(np.random.default_rng(7), (300, 13), dtype.name)
    expected = plain(X, drawn.vectors, drawn.phases, scales, paired)
    np.testing.assert_allclose(block(X if sparse else X.toarray()), expected, atol=ATOL[dtype])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_bad_values_are_named_by_row_and_column(
    value: float, dtype: np.dtype, sparse: bool, n_threads: int
) -> None:
    block, *_ = make(9, 400, dtype)
    X = random_csr(np.random.default_rng(8), (900, 9), dtype.name, density=0.9).toarray()
    X[777, 6] = value
    X = sp.csr_array(X) if sparse else X
    name = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(NotFiniteError, match=f"{name} at row 777, column 6 of block 3; drop") as e:
        block(X, n_threads, where=" of block 3")
    assert (e.value.row, e.value.column) == (777, 6)


@pytest.mark.parametrize("sparse", [False, True])
def test_infinities_of_both_signs_in_a_row_are_found(sparse: bool) -> None:
    X = np.ones((5, 4), np.float32)
    X[3, 1], X[3, 2] = np.inf, -np.inf
    X = sp.csr_array(X) if sparse else X
    with pytest.raises(NotFiniteError, match="row 3, column 1;"):
        check_finite(X)
    with pytest.raises(NotFiniteError, match="row 3, column 1;"):
        make(4, 10, F32)[0](X)


def test_a_frequency_of_zero_does_not_hide_bad_values() -> None:
    block = CosineBlock.make(np.zeros((2, 3)), np.zeros(3), np.ones(3), F64)
    with pytest.raises(NotFiniteError, match="infinity at row 1, column 0"):
        block(np.array([[0.0, 1.0], [np.inf, 1.0]]))


@pytest.mark.parametrize("value", [1e308, np.finfo(np.float64).max])
def test_large_finite_values_pass_the_check(value: float) -> None:
    check_finite(np.full((3, 3), value))


def test_finite_values_whose_angles_overflow_are_refused() -> None:
    X = np.zeros((30, 2), np.float32)
    X[17, 1] = np.finfo(np.float32).max
    block = CosineBlock.make(np.full((2, 3), 50.0), np.zeros(3), np.ones(3), F32)
    with pytest.raises(ValueError, match=r"row 17 too large.*scale X"):
        block(X)


@pytest.mark.parametrize("values", [np.ones((2, 2), np.uint8), np.ones((0, 3)), np.ones((2, 2))])
def test_good_values_pass(values: np.ndarray) -> None:
    check_finite(values)
    check_finite(sp.csr_array(values))


def test_first_row_is_counted_from_where_the_block_starts() -> None:
    X = np.ones((4, 2))
    X[2, 1] = np.nan
    with pytest.raises(NotFiniteError, match="row 102, column 1 of file a;"):
        check_finite(X, 100, " of file a")


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(NotFiniteError(3, 4, np.nan, " of block 7")))
    assert isinstance(error, NotFiniteError)
    assert (error.row, error.column) == (3, 4)
    assert "row 3, column 4 of block 7" in str(error)

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import label_binarize

from rfcdask.kernels import get_kernel
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.selection.candidates import Candidates, RowTarget, label_columns
from tests.reference import exact_kernel, random_csr

F64 = np.dtype(np.float64)
M = 300


@pytest.mark.parametrize("budget", [0, 2**30])
@pytest.mark.parametrize("kind", ["kernel", "candidates"])
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_of_the_target(kind: str, labels: bool, sparse: bool, budget: int) -> None:
    rng = np.random.default_rng(0)
    X = random_csr(rng, (M, 5))
    W, b = rng.normal(size=(5, 40)), rng.uniform(0, 7, 40)
    block = CosineBlock.make(W, b, np.full(40, 0.2), F64)
    y = rng.normal(size=(M, 3)) if labels else None
    Z = 0.2 * np.cos(X.toarray() @ W + b)
    whole = exact_kernel("rbf", X.toarray(), X.toarray(), 0.3) if kind == "kernel" else Z @ Z.T
    whole = whole + (0 if y is None else y @ y.T)
    rows = X if sparse else X.toarray()
    target = RowTarget(
        rows,
        get_kernel("rbf") if kind == "kernel" else None,
        0.3,
        labels=y,
        candidates=Candidates(block, rows, F64, budget),
        dtype=F64,
        budget=budget,
    )
    chosen = np.array([299, 4, 4, 0])
    np.testing.assert_allclose(
        target.block(slice(3, 290), slice(3, M)), whole[3:290, 3:], atol=1e-12
    )
    np.testing.assert_allclose(
        target.block(chosen, chosen), whole[np.ix_(chosen, chosen)], atol=1e-12
    )


@pytest.mark.parametrize("budget", [0, 2**30])
@pytest.mark.parametrize("which", [slice(0, 3), np.arange(3)])
def test_a_block_may_be_written_to(budget: int, which: object) -> None:
    X = np.random.default_rng(1).normal(size=(6, 2))
    target = RowTarget(X, get_kernel("rbf"), 0.3, dtype=F64, budget=budget)
    before = target.block(which, which).copy()
    target.block(which, which)[...] = 7
    np.testing.assert_array_equal(target.block(which, which), before)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "b", "c", "a", "a", "b"]),
        np.array(["a", "b", "c", "a", "a", "b"], object),
        np.array([3, 1, 2, 3, 3, 1]),
        np.array([[3], [1], [2], [3], [3], [1]]),
        np.array([3.0, 1.0, 2.0, 3.0, 3.0, 1.0]),
    ],
)
def test_classes_become_centred_columns(y: np.ndarray) -> None:
    expected = label_binarize(y.ravel(), classes=np.unique(y)).astype(float)
    expected -= expected.mean(axis=0)
    expected /= np.sqrt((expected**2).sum() / len(y))
    np.testing.assert_allclose(label_columns(y), expected, atol=1e-14)


def test_two_classes_become_two_columns() -> None:
    columns = label_columns(np.array([True, False, False, True, True]))
    assert columns.shape == (5, 2)
    np.testing.assert_allclose(columns.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose((columns**2).sum() / 5, 1)


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_numbers_stay_columns(shape: tuple[int, ...]) -> None:
    y = np.random.default_rng(2).normal(size=shape)
    columns = label_columns(y)
    centred = y.reshape(50, -1) - y.reshape(50, -1).mean(axis=0)
    np.testing.assert_allclose(columns, centred / np.sqrt((centred**2).sum() / 50), atol=1e-12)


def test_many_labels_at_once_stay_columns() -> None:
    y = np.random.default_rng(3).integers(0, 2, (40, 4))
    columns = label_columns(y)
    assert columns.shape == (40, 4)
    centred = y - y.mean(axis=0)
    np.testing.assert_allclose(columns, centred / np.sqrt((centred**2).sum() / 40), atol=1e-12)


def test_several_class_columns_are_refused() -> None:
    y = np.random.default_rng(4).integers(0, 5, (40, 2))
    with pytest.raises(ValueError, match=r"label_weight needs one class per row.*y\[:, 0\]"):
        label_columns(y)


@pytest.mark.parametrize("y", [np.ones(5), np.array(["x"] * 4), np.full(6, 0.5)])
def test_labels_that_do_not_differ_are_refused(y: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"label_weight needs labels that differ.*label_weight=0"):
        label_columns(y)

"""What is wrong with the input is said in one sentence that names the place and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from dask.delayed import delayed
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import rfcdask as rf
from rfcdask.linear.inputs import accumulate_moments
from rfcdask.linear.write import write_zarr
from tests.linear_data import blobs, lazy

MODELS = [
    rf.SGDClassifier(random_state=0, epochs=2),
    rf.SGDRegressor(random_state=0, epochs=2),
    rf.Ridge(),
    rf.RidgeClassifier(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 437, 999])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_not_finite_x_names_block_and_row(model: Any, value: float, row: int, kind: Any) -> None:
    X, y = blobs(1000, 5, 3)
    X = X.astype(kind)
    X[row, 3] = value
    block, within = divmod(row, 100)
    words = rf"X is NaN or infinite in block {block}, row {within} .*row {row} of X, column 3"
    with pytest.raises(ValueError, match=words):
        model.fit(lazy(X, 100), lazy(y, 100))


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite_y_names_block_and_row(model: Any, value: float) -> None:
    X, labels = blobs(1000, 5, 3)
    y = labels.astype(float)
    y[437] = value
    words = r"y is NaN or infinite in block 4, row 37 of the block \(row 437 of y"
    with pytest.raises(ValueError, match=words):
        model.fit(lazy(X, 100), lazy(y, 100))


def test_not_finite_rows_stop_training_on_a_cluster(cluster_client: Any) -> None:
    X, y = blobs(1000, 5, 3)
    X[437, 3] = np.nan
    for model in MODELS:
        with pytest.raises(ValueError, match="block 4, row 37"):
            model.fit(lazy(X, 100), lazy(y, 100), client=cluster_client)


def test_pca_names_the_row() -> None:
    X, _ = blobs(1000, 5, 3)
    X[437, 3] = np.nan
    with pytest.raises(ValueError, match="block 4, row 37"):
        rf.PCA(2).fit(lazy(X, 100))


def test_feature_maps_name_the_row_too() -> None:
    X, y = blobs(1000, 5, 3)
    features = rf.RandomFeatures(20, random_state=0).fit(X)
    X[437, 3] = np.nan
    with pytest.raises(ValueError, match="row 37, column 3 of block 4"):
        rf.SGDClassifier(epochs=5, random_state=0).fit(
            features.transform(lazy(X, 100)), lazy(y, 100)
        )


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3]], ids=lambda m: type(m).__name__)
def test_labels(model: Any) -> None:
    X, y = blobs(300, 5, 2)
    with pytest.raises(ValueError, match=r"only one class \(1\); a classifier needs"):
        model.fit(lazy(X, 100), np.ones(300, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(lazy(X, 100), np.linspace(0, 1, 300))
    model.fit(lazy(X, 100), lazy(y, 100))
    with pytest.raises(ValueError, match=r"labels \[5\] that the model was not fitted on"):
        model.score(lazy(X, 100), lazy(np.where(y == 1, 5, y), 100))
    with pytest.raises(ValueError, match="cannot be compared"):
        model.fit(lazy(X, 100), lazy(np.array(["a", 1] * 150, object), 100))
    with pytest.raises(ValueError, match=r"one label for each row"):
        model.fit(X, np.zeros((300, 2)))


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_shapes_and_chunks(model: Any) -> None:
    X, y = blobs(300, 5, 2)
    Z = lazy(X, 100)
    cut = clone(model).fit(Z, lazy(y, 60))
    same = clone(model).fit(Z, lazy(y, 100))
    assert np.array_equal(cut.predict(X), same.predict(X))
    with pytest.raises(ValueError, match="y has 299 rows and X has 300"):
        model.fit(Z, y[:299])
    with pytest.raises(ValueError, match="sample_weight has 10 rows and X has 300"):
        model.fit(Z, lazy(y, 100), np.ones(10))
    with pytest.raises(ValueError, match="sample_weight has 200 rows"):
        model.fit(Z, lazy(y, 100), lazy(np.ones(200), 100))
    with pytest.raises(ValueError, match=r"negative or not finite in block 1, row 5"):
        model.fit(Z, lazy(y, 100), np.where(np.arange(300) == 105, -1.0, 1.0))
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.fit(Z, None)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        model.fit(Z[Z[:, 0] > 0], y)
    with pytest.raises(ValueError, match="1 dimension"):
        model.fit(Z[:, 0], y)
    with pytest.raises(ValueError, match="is empty"):
        model.fit(Z[:0], y[:0])
    with pytest.raises(ValueError, match="real numbers"):
        model.fit(Z.astype(str), y)
    model.fit(Z, lazy(y, 100))
    with pytest.raises(ValueError, match="X has 4 features"):
        model.predict(Z[:, :4])


def test_columns_in_several_blocks_are_put_together() -> None:
    X, y = blobs(300, 6, 2)
    apart = da.from_array(X, chunks=(100, 2))
    one = rf.SGDClassifier(epochs=5, random_state=0).fit(apart, y)
    other = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 100), y)
    assert np.array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"epochs": 0}, r"'epochs' parameter .* must be an int in the range \[1, inf\) .* Got 0"),
        ({"alpha": np.inf}, r"'alpha' .* in the range \[0.0, inf\)"),
        ({"alpha": -1}, r"'alpha' .* a float in the range \[0.0, inf\) or a str among {'auto'}"),
        ({"batch_size": 2.5}, r"'batch_size' .* an int in the range \[1, inf\)"),
        ({"eta0": 0}, r"'eta0' .* must be a float in the range \(0.0, inf\)"),
        ({"early_stopping": True, "validation_fraction": 2}, r"in the range \(0.0, 1.0\)"),
        ({"loss": "huber"}, "'loss' .* must be a str among {.*'hinge'.*}"),
        (
            {"loss": "squared_hinge", "multi_class": "multinomial"},
            "loss='squared_hinge' with multi_class='multinomial' is not known; there are",
        ),
        ({"persist": "maybe"}, "'persist' .*'auto'.* Got 'maybe'"),
        ({"checkpoint_every": 0}, "'checkpoint_every' parameter of SGDClassifier must be an int"),
    ],
)
def test_settings(setting: dict[str, Any], words: str) -> None:
    X, y = blobs(50, 3, 2)
    with pytest.raises(ValueError, match=words):
        rf.SGDClassifier(**setting).fit(X, y)


def test_probabilities_exist_for_log_loss_only() -> None:
    X, y = blobs(50, 3, 2)
    model = rf.SGDClassifier(epochs=5, random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    assert "use loss='log_loss'" in str(caught.value.__cause__)


@pytest.mark.parametrize("alphas", [[], [1.0, -2.0], [np.nan]])
def test_penalties(alphas: Any) -> None:
    X, y = blobs(50, 3, 2)
    with pytest.raises(ValueError, match="alpha"):
        rf.Ridge(alphas=alphas).fit(X, y)


@pytest.mark.parametrize("wanted", [0, 9, 1.5, "many"])
def test_components(wanted: Any) -> None:
    with pytest.raises(ValueError, match=r"n_components.* must be"):
        rf.PCA(wanted).fit(blobs(50, 3, 2)[0])


ALL_MODELS = [
    rf.KernelClassifier(8, epochs=1, random_state=0),
    rf.KernelRegressor(8, epochs=1, random_state=0),
    rf.SGDClassifier(epochs=1, loss="log_loss", random_state=0),
    rf.SGDRegressor(epochs=1, random_state=0),
    rf.Ridge(),
    rf.RidgeClassifier(),
    rf.PCA(2),
]


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_values_are_named_by_row_and_column(model: Any, value: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    fitted = clone(model).fit(X, y)
    X[157, 2] = value
    blocks = lazy(X, 50)
    calls = ("predict", "predict_proba", "decision_function", "transform")
    for name in (name for name in calls if hasattr(fitted, name)):
        with pytest.raises(ValueError, match="row 157, column 2;"):
            getattr(fitted, name)(X)
        with pytest.raises(ValueError, match="row 7, column 2 of block 3;"):
            getattr(fitted, name)(blocks).compute()
    with pytest.raises(ValueError, match="row 157, column 2;"):
        clone(model).fit(X, y)
    if hasattr(fitted, "score"):
        with pytest.raises(ValueError, match="row 7, column 2 of block 3;"):
            fitted.score(blocks, y)


def test_rows_held_out_do_not_shift_the_place() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    X[157, 2] = np.nan
    blocks = lazy(X, 50)
    with pytest.raises(ValueError, match="row 157 of X, column 2"):
        accumulate_moments(blocks, da.zeros(200, chunks=50), validation_fraction=0.5, seed=1)


MAPS = [
    rf.RandomFeatures(8, gamma="scale"),
    rf.JLFeatures(8, gamma="scale", n_candidates=64),
    rf.NystroemFeatures(8, gamma=0.5),
    rf.Standardizer(),
]


@pytest.mark.parametrize("model", [*ALL_MODELS, *MAPS], ids=lambda model: type(model).__name__)
def test_a_refused_fit_leaves_nothing_of_the_last(model: Any) -> None:
    """Old coefficients with new classes or columns would answer wrongly."""
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    fitted = clone(model).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(lazy(np.full((200, 2), np.nan), 50), lazy(y + 5, 50))
    call = fitted.transform if hasattr(fitted, "transform") else fitted.predict
    for rows in (X, X[:, :2]):
        with pytest.raises(NotFittedError):
            call(rows)
    assert np.isfinite(np.asarray(call(X) if fitted.fit(X, y) else None, float)).all()


@pytest.mark.parametrize("model", [*ALL_MODELS, *MAPS], ids=lambda model: type(model).__name__)
def test_values_behind_a_mask_are_no_values(model: Any) -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    behind = np.ma.masked_array(X, mask=X > 2)
    fitted = clone(model).fit(np.ma.masked_array(X), y)  # nothing is masked
    call = fitted.transform if hasattr(fitted, "transform") else fitted.predict
    for rows in (behind, da.from_array(behind, chunks=(50, 4))):
        for use in (call, lambda rows: clone(model).fit(rows, y)):
            with pytest.raises(ValueError, match=r"X is a masked array.* fill it"):
                use(rows)
    if hasattr(fitted, "score"):
        with pytest.raises(ValueError, match="y is a masked array"):
            clone(model).fit(X, np.ma.masked_array(y, mask=y > 0))


STEPS = ALL_MODELS[:4]


@pytest.mark.parametrize("model", STEPS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("weight", [0.0, 1e-50, 1e-40, 1e30])
def test_weights_that_no_step_can_count_are_refused(model: Any, weight: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    words = "weights are all zero|mean of .*divide them by their mean|not finite"
    with pytest.raises(ValueError, match=words):
        clone(model).fit(lazy(X, 50), lazy(y, 50), sample_weight=da.full(200, weight, chunks=50))
    clone(model).fit(X, y, sample_weight=np.where(y, 1.0, 1e-50))  # such a row counts for nothing


@pytest.mark.parametrize("model", ALL_MODELS[:6], ids=lambda model: type(model).__name__)
def test_types_of_which_a_part_would_be_dropped(model: Any) -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    dates = X.astype("datetime64[s]")
    with pytest.raises(ValueError, match=r"X has dtype datetime64\[s\], but real numbers"):
        clone(model).fit(dates, y)
    for wrong in (np.ones(200) * 1j, np.full(200, "a")):
        with pytest.raises(ValueError, match=r"sample_weight has .* one real number"):
            clone(model).fit(X, y, sample_weight=wrong)
    if not hasattr(clone(model).fit(X, y), "classes_"):
        for wrong in (y * 1j, y.astype("datetime64[s]"), y.astype("timedelta64[s]")):
            with pytest.raises(ValueError, match=r"y has dtype .*real numbers are needed"):
                clone(model).fit(X, wrong)


def test_numbers_beyond_all_squares_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = X[:, 0] * 1e200
    with pytest.raises(ValueError, match="overflow in block 0; scale the columns of X, or y"):
        rf.Ridge().fit(X, y)
    with pytest.raises(ValueError, match="too large to square"):
        rf.Ridge().fit(X, X[:, 0]).score(X, y)
    with pytest.raises(ValueError, match="too large to square"):
        rf.KernelRegressor(8, epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="scale the columns of X"):
        rf.SGDClassifier(epochs=1).fit(X * 1e160, X[:, 0] > 0)


def test_some_rows_must_be_left_to_learn_from() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    with pytest.raises(ValueError, match=r"leaves 0 of 200 rows to learn from; lower it"):
        rf.KernelRegressor(8, epochs=1, validation_fraction=0.999).fit(X, X[:, 0])


def test_classes_are_told_apart() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0) + 2**53
    model = rf.RidgeClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"beyond 2\*\*53"):
        model.score(X, y.astype(float))
    with pytest.raises(ValueError, match="holds a label that is no value"):
        rf.SGDClassifier().partial_fit(X, y, classes=[0.0, 1.0, np.nan])
    many = da.arange(20_000, chunks=5000)
    with pytest.raises(ValueError, match=r"than 10000 distinct labels\. Unknown label type"):
        rf.RidgeClassifier().fit(da.ones((20_000, 2), chunks=(5000, 2)), many)


def test_the_square_of_many_columns_is_refused_at_once() -> None:
    X = sp.random_array((50, 2_000_000), density=1e-6, format="csr", rng=0)
    for model in (rf.Ridge(), rf.RidgeClassifier()):
        with pytest.raises(MemoryError, match=r"2,000,000 columns make a matrix .*SGDRegressor"):
            model.fit(X, np.arange(50) % 2)


def _damaged(how: str, kind: Any = sp.csr_matrix) -> Any:
    """Return a sparse matrix that scipy does not refuse, and reads beyond its arrays with."""
    found = kind(blobs(400, 5, 2)[0])
    if how == "column":
        found.indices[50] = max(found.shape)
    elif how == "far":
        found.indices[50:80] = 50_000_000
    elif how == "negative":
        found.indices[50] = -7
    elif how == "falls":
        found.indptr[2] = 0 if kind is sp.csc_matrix else 400
    elif how == "end":
        found.indptr[-1] += 1000
    else:
        found.data = found.data[:10]
    return found


def _of_delayed(block: Any, shape: tuple[int, ...], meta: Any = None) -> Any:
    return da.from_delayed(delayed(lambda: block)(), shape, np.float32, meta=meta)


DAMAGES = ["column", "far", "negative", "falls", "end", "data"]


@pytest.mark.parametrize("model", [*ALL_MODELS, *MAPS], ids=lambda model: type(model).__name__)
def test_sparse_rows_that_point_beyond_their_arrays(model: Any) -> None:
    X, y = blobs(400, 5, 2)
    fitted = clone(model).fit(X, y)
    use = fitted.predict if hasattr(fitted, "predict") else fitted.transform
    for damaged in map(_damaged, DAMAGES):
        in_blocks = _of_delayed(damaged, X.shape, sp.csr_matrix((0, 0)))
        for given in (damaged, in_blocks):
            with pytest.raises(ValueError, match="X is a damaged csr matrix"):
                clone(model).fit(given, y)
            with pytest.raises(ValueError, match="X is a damaged csr matrix"):
                np.asarray(use(given))


@pytest.mark.parametrize("how", DAMAGES)
def test_sparse_columns_and_stores_of_damaged_rows(how: str, tmp_path: Path) -> None:
    y = blobs(400, 5, 2)[1]
    with pytest.raises(ValueError, match="X is a damaged csc matrix"):
        rf.RidgeClassifier().fit(_damaged(how, sp.csc_matrix), y)
    with pytest.raises(ValueError, match="X is a damaged csr matrix"):
        rf.ingest((_damaged(how), y), tmp_path / "rows.zarr")
    with pytest.raises(ValueError, match="X is a damaged csr matrix"):
        rf.tune(_damaged(how), y)


BLOCKS = {
    "fewer rows": lambda X: X[:90],
    "more rows": lambda X: np.vstack([X, X[:10]]),
    "no rows": lambda X: X[:0],
    "fewer columns": lambda X: X[:, :4],
    "more columns": lambda X: np.hstack([X, X]),
    "flat": np.ravel,
    "complex": lambda X: X + 1j,
    "objects": lambda X: X.astype(object),
    "masked": lambda X: np.ma.masked_less(X, 0),
    "sparse": lambda X: sp.csr_matrix(X[:90]),
}


@pytest.mark.parametrize("model", [*ALL_MODELS, *MAPS], ids=lambda model: type(model).__name__)
def test_blocks_that_are_not_what_the_array_says(model: Any) -> None:
    X, y = blobs(400, 5, 2)
    fitted = clone(model).fit(X, y)
    use = fitted.predict if hasattr(fitted, "predict") else fitted.transform
    for lie in BLOCKS.values():
        wrong = _of_delayed(lie(X[100:200]), (100, 5))
        lying = da.concatenate([lazy(X[:100], 100), wrong, lazy(X[200:], 100)])
        calls = [lambda g: clone(model).fit(g, y), lambda g: use(g).compute()]
        calls += [lambda g: fitted.score(g, y)] if hasattr(fitted, "score") else []
        for call in calls:
            words = r"A block of X \(from row 100 on\).*Dask array says"
            with pytest.raises(ValueError, match=words):
                call(lying)


@pytest.mark.parametrize("model", ALL_MODELS[:6], ids=lambda model: type(model).__name__)
def test_blocks_of_labels_and_weights_have_the_rows_they_say(model: Any) -> None:
    X, y = blobs(400, 5, 2)
    for size in (90, 110):
        wrong = _of_delayed(np.resize(y, size), (100,))
        column = da.concatenate([lazy(y[:100], 100), wrong, lazy(y[200:], 100)])
        with pytest.raises(ValueError, match=r"A block of y \(from row 100 on\)"):
            clone(model).fit(lazy(X, 100), column)
        with pytest.raises(ValueError, match=r"A block of sample_weight \(from row 100 on\)"):
            clone(model).fit(lazy(X, 100), lazy(y, 100), sample_weight=column)


def test_the_true_chunks_are_found_as_the_error_says() -> None:
    X, _ = blobs(190, 5, 2)
    lying = da.concatenate([_of_delayed(X[:100], (100, 5)), _of_delayed(X[100:], (100, 5))])
    features = rf.RandomFeatures(8, gamma=0.5, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"X.compute_chunk_sizes\(\)"):
        features.transform(lying).compute()
    found = features.transform(lying.compute_chunk_sizes())
    np.testing.assert_array_equal(found.compute(), features.transform(X))


def test_other_steps_look_at_the_blocks_too(tmp_path: Path) -> None:
    X, y = blobs(400, 5, 2)
    lying = da.concatenate([_of_delayed(X[:90], (100, 5)), lazy(X[100:], 100)])
    model = rf.RidgeClassifier().fit(X, y)
    wrong = da.concatenate([_of_delayed(y[:90], (100,)), lazy(y[100:], 100)])
    calls = [
        lambda: rf.ingest((lying, y), tmp_path / "a.zarr"),
        lambda: rf.ingest((lazy(X, 100), wrong), tmp_path / "b.zarr"),
        lambda: write_zarr(lying, tmp_path / "c.zarr"),
        lambda: rf.tune(lying, y, random_state=0),
        lambda: rf.metrics.accuracy_score(wrong, model.predict(lazy(X, 100))),
        lambda: rf.permutation_importance(model, lying, y),
        lambda: rf.kernel_error(rf.RandomFeatures(8, gamma=0.5).fit(X), lying),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"A block of \w+ \(from row 0 on\)"):
            call()


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.bsr_matrix, sp.coo_matrix])
def test_good_sparse_rows_of_all_kinds_are_taken(kind: Any) -> None:
    X, y = blobs(400, 6, 2)
    wanted = rf.RidgeClassifier().fit(X, y).coef_
    given = kind(X)
    if hasattr(given, "indptr"):
        given.indptr, given.indices = given.indptr.astype("u4"), given.indices.astype("i8")
    np.testing.assert_allclose(rf.RidgeClassifier().fit(given, y).coef_, wanted, rtol=1e-4)
    empty = kind((3, 6), dtype=np.float32)
    assert rf.RidgeClassifier().fit(X, y).predict(empty).shape == (3,)


def test_a_flat_sparse_array_is_no_matrix() -> None:
    X, y = blobs(400, 5, 2)
    for model in (rf.RidgeClassifier(), rf.RandomFeatures(8)):
        with pytest.raises(ValueError, match=r"2D|1D|1-D"):
            model.fit(sp.csr_array(X[:, 0]), y)


def test_sparse_labels_and_weights_are_refused_by_name() -> None:
    X, y = blobs(400, 5, 2)
    column = sp.csr_matrix(y[:, None])
    for rows in (X, lazy(X, 100)):
        with pytest.raises(ValueError, match=r"y is a sparse matrix; give y.toarray\(\)"):
            rf.RidgeClassifier().fit(rows, column)
        with pytest.raises(ValueError, match="sample_weight is a sparse matrix"):
            rf.RidgeClassifier().fit(rows, y, sample_weight=column)
    flat = column.toarray().ravel()
    assert rf.RidgeClassifier().fit(X, flat, sample_weight=flat + 1).score(X, y) > 0.5

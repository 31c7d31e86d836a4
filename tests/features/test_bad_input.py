"""Bad input is refused before work begins, in one sentence that names the remedy."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask.delayed import delayed
from sklearn.exceptions import NotFittedError

import rfcdask as rf
from rfcdask.kernels import Kernel

X = np.random.default_rng(0).normal(size=(300, 5))
ALL = [rf.RandomFeatures, rf.CompressedFeatures, rf.JLFeatures, rf.NystroemFeatures]
DRAWN = [rf.RandomFeatures, rf.CompressedFeatures, rf.JLFeatures]
SOFT = Kernel("sinc", radius=lambda u, gamma: gamma * u)


def lazy(data: np.ndarray = X, rows: int = 50) -> Any:
    return da.from_array(data, chunks=(rows, data.shape[1]))


def message(features: Any, data: Any = X, y: Any = None) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at the words
        features.fit(data, y)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", ["numpy", "csr", "dask", "dask-csr"])
def test_not_finite_in_sampled_rows(kind: type, value: float, form: str) -> None:
    data = X.copy()
    data[217, 3] = value
    given = {
        "numpy": lambda: data,
        "csr": lambda: sp.csr_array(data),
        "dask": lambda: lazy(data),
        "dask-csr": lambda: lazy(data).map_blocks(sp.csr_array),
    }[form]()
    text = message(kind(4, random_state=0), given)
    assert "row 217, column 3" in text
    assert ("NaN" if np.isnan(value) else "infinity") in text
    assert "drop" in text


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("form", ["numpy", "csr", "dask", "dask-csr"])
def test_not_finite_in_transform(kind: type, form: str) -> None:
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    features = kind(4, random_state=0, **small).fit(X)
    data = X.copy()
    data[217, 3] = np.nan
    if form.startswith("dask"):
        given = lazy(data)
        Z = features.transform(given.map_blocks(sp.csr_array) if form.endswith("csr") else given)
        with pytest.raises(ValueError, match="NaN at row 17, column 3 of block 4"):
            Z.compute(scheduler="threads")
    else:
        with pytest.raises(ValueError, match="NaN at row 217, column 3"):
            features.transform(data if form == "numpy" else sp.csr_array(data))


@pytest.mark.parametrize("kind", ALL)
def test_shape_of_x(kind: type) -> None:
    assert "Reshape your data" in message(kind(4), X[:, 0])
    assert "Reshape your data" in message(kind(4), da.from_array(X[:, 0], chunks=50))
    assert "minimum of 1 is required" in message(kind(4), X[:0])
    assert "is empty" in message(kind(4), da.zeros((0, 5)))
    assert "is empty" in message(kind(4), da.zeros((5, 0)))
    assert "at least 2" in message(kind(4), X[:1])
    assert "at least 2" in message(kind(4), lazy(X[:1]))
    assert "dtype" in message(kind(4), lazy(X.astype(str)))


@pytest.mark.parametrize("kind", ALL)
def test_unknown_chunk_sizes(kind: type) -> None:
    unknown = lazy()[da.from_array(X[:, 0] > 0, chunks=50)]
    assert "compute_chunk_sizes()" in message(kind(4), unknown)
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    with pytest.raises(ValueError, match="unknown chunk sizes"):
        kind(4, **small).fit(X).transform(unknown)


@pytest.mark.parametrize("kind", ALL)
def test_column_count_at_transform(kind: type) -> None:
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    features = kind(4, **small).fit(X)
    for given in (X[:, :4], lazy(X[:, :4]), sp.csr_array(X[:, :4])):
        with pytest.raises(ValueError, match=r"4 features, but .* is expecting 5 features"):
            features.transform(given)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("count", [0, -1, 2.5, None, True])
def test_number_of_features(kind: type, count: Any) -> None:
    assert "n_components" in message(kind(count))


@pytest.mark.parametrize("kind", ALL)
def test_unknown_kernel_and_gamma(kind: type) -> None:
    assert "rbf, laplacian, cauchy" in message(kind(4, kernel="sigmoid"))
    assert "'median'" in message(kind(4, gamma="auto"))
    for gamma in (0, -1.0, np.nan, np.inf):
        assert "gamma=" in message(kind(4, gamma=gamma))


@pytest.mark.parametrize("kind", DRAWN)
def test_unknown_draw_and_phases(kind: type) -> None:
    assert "iid, orthogonal, halton, sobol, fastfood" in message(kind(4, sampling="latin"))
    assert "random, paired" in message(kind(4, phases="none"))
    if kind is not rf.JLFeatures:
        assert "must be even" in message(kind(5, phases="paired"))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("rule", ["scale", "median"])
def test_constant_data(kind: type, rule: str) -> None:
    for given in (np.full((50, 3), 7.0), da.full((50, 3), 7.0, chunks=(10, 3))):
        text = message(kind(4, gamma=rule), given)
        assert "constant" in text
        assert "gamma as a number" in text


def test_constant_rows_cannot_be_compressed() -> None:
    rows = np.tile([1.0, 2.0, 3.0], (50, 1))
    for given in (rows, sp.csr_array(rows)):
        assert "identical" in message(rf.CompressedFeatures(4, gamma=1.0), given)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_components": 60, "n_candidates": 50}, "raise n_candidates"),
        ({"n_candidates": 0}, "n_candidates=0"),
        ({"n_pairs": 0}, "n_pairs=0"),
        ({"n_pairs": -5}, "n_pairs=-5"),
        ({"n_rows": 1}, "n_rows=1"),
        ({"refine": -1}, "refine=-1"),
        ({"solver": "lasso"}, "giga, frank-wolfe, pursuit"),
        ({"target": "labels"}, "kernel, candidates"),
        ({"kernel": SOFT}, "no closed form; use target='candidates'"),
        ({"label_weight": 0.3}, "label_weight=0.3 needs labels"),
        ({"label_weight": -1.0}, "label_weight=-1.0"),
        ({"tol": 0.0}, "tol=0.0"),
        ({"random_state": -3}, "random_state=-3"),
    ],
)
def test_settings_of_compression(settings: dict[str, Any], words: str) -> None:
    defaults = {"n_components": 4, "n_candidates": 50}
    assert words in message(rf.CompressedFeatures(**(defaults | settings)))


def test_labels_of_another_length_or_of_one_class() -> None:
    features = rf.CompressedFeatures(4, n_candidates=50, label_weight=1.0)
    assert "300 rows and y has 299" in message(features, X, np.arange(299) % 2)
    assert "same y" in message(features, X, np.zeros(300))


def test_other_maps_refuse_what_they_cannot_do() -> None:
    assert "must shrink" in message(rf.JLFeatures(60, n_candidates=50))
    assert "gaussian, fast" in message(rf.JLFeatures(4, projection="sparse"))
    assert "uniform, rpcholesky" in message(rf.NystroemFeatures(4, landmarks="kmeans"))
    assert "no closed form" in message(rf.NystroemFeatures(4, kernel=SOFT))


def test_sobol_says_how_many_columns_it_takes() -> None:
    wide = sp.random_array((20, 30_000), density=1e-3, format="csr", rng=np.random.default_rng(0))
    assert "21,199" in message(rf.RandomFeatures(4, sampling="sobol"), wide)


def test_a_kernel_without_closed_form_works_with_its_candidates() -> None:
    features = rf.CompressedFeatures(
        8, kernel=SOFT, gamma=1.0, target="candidates", n_candidates=50, refine=5, random_state=0
    ).fit(X)
    assert features.transform(X).shape == (300, 8)
    with pytest.raises(ValueError, match="no closed form"):
        rf.kernel_error(features, X)


@pytest.mark.parametrize(
    "make", [rf.RandomFeatures, rf.JLFeatures, rf.NystroemFeatures], ids=lambda m: m.__name__
)
def test_a_row_far_down_a_block_is_named_by_its_place(make: Any) -> None:
    data = np.random.default_rng(3).normal(size=(9000, 4)).astype(np.float32)
    fitted = make(20, gamma=0.2, random_state=0).fit(data)
    data[8765, 1] = np.nan
    blocks = fitted.transform(da.from_array(data, chunks=(9000, 4)))
    with pytest.raises(ValueError, match="NaN at row 8765, column 1 of block 0"):
        blocks.compute(scheduler="synchronous")


@pytest.mark.parametrize("kind", ALL)
def test_a_dask_frame_is_refused_and_not_read(kind: type) -> None:
    class DataFrame:
        ndim = 2

        def to_dask_array(self, lengths: bool) -> None:
            raise AssertionError("read")

    with pytest.raises(TypeError, match=r"X is a dask DataFrame; put rfcdask.TableEncoder"):
        kind(4, random_state=0).fit(DataFrame())
    for estimator in (rf.RidgeClassifier(), rf.Standardizer()):
        with pytest.raises(TypeError, match="X is a dask DataFrame"):
            estimator.fit(DataFrame(), X[:, 0])


@pytest.mark.parametrize("kind", ALL)
def test_an_unknown_number_of_columns(kind: type) -> None:
    some = lazy()[:, da.from_array(np.array([True, False, True, True, True]), chunks=5)]
    assert "compute_chunk_sizes" in message(kind(4, random_state=0), some)


@pytest.mark.parametrize("kind", ALL)
def test_the_last_fit_counts(kind: type) -> None:
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    features = kind(4, random_state=0, **small)
    features.fit(pd.DataFrame(X, columns=list("abcde")))
    wide = np.hstack([X, X])
    features.fit(lazy(wide))
    names = [f"c{k}" for k in range(10)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that there were no names
        assert features.transform(pd.DataFrame(wide, columns=names)).shape == (300, 4)
    features.random_state = "no seed"
    with pytest.raises(ValueError, match="seed"):
        features.fit(X)


@pytest.mark.parametrize("kind", ALL)
def test_a_failed_fit_is_no_fit(kind: type) -> None:
    features = kind(4, gamma="scale", random_state=0)
    message(features, np.ones((20, 3)))
    with pytest.raises(NotFittedError):
        features.transform(X)
    with pytest.raises(NotFittedError):
        features.get_feature_names_out()


def test_a_fit_that_failed_after_its_gamma_is_no_fit() -> None:
    features = rf.CompressedFeatures(4, n_candidates=40, gamma=1.0, random_state=0)
    message(features, X[[0] * 20])
    with pytest.raises(NotFittedError):
        features.transform(X)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.where(np.arange(300) == 3, None, "a"), "1 of 300 sampled labels missing"),
        (np.where(np.arange(300) == 3, np.nan, X[:, 0]), "1 of 300 sampled labels missing"),
        (sp.csr_array(X > 0), "y is a sparse matrix"),
        (3, "y has a single value: give one label for each row"),
        (da.from_array(X[:, 0])[da.from_array(X[:, 0]) > -9], "y has unknown chunk sizes"),
    ],
    ids=["none", "nan", "sparse", "one", "unknown"],
)
def test_labels_that_are_none(y: Any, words: str) -> None:
    features = rf.CompressedFeatures(4, n_candidates=40, label_weight=0.5, random_state=0)
    assert words in message(features, X, y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tol": "0.1"},
        {"tol": True},
        {"label_weight": None},
        {"label_weight": "1"},
        {"label_weight": [1]},
        {"label_weight": np.nan},
        {"refit": "no"},
        {"gamma": True},
    ],
    ids=str,
)
def test_parameters_of_another_type(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    text = message(rf.CompressedFeatures(4, n_candidates=40, random_state=0, **wrong))
    assert f"{name}={value!r} must be" in text


def test_complex_numbers_are_not_cut() -> None:
    assert "X.real and X.imag" in message(rf.RandomFeatures(4), lazy(X + 1j))


@pytest.mark.parametrize("kind", ALL)
def test_long_floats_become_doubles(kind: type) -> None:
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    features = kind(4, random_state=0, **small).fit(X.astype(np.longdouble))
    Z = features.transform(X.astype(np.longdouble))
    assert Z.dtype == np.float64
    lazily = features.transform(lazy(X.astype(np.longdouble)))
    assert lazily.dtype == np.float64
    np.testing.assert_allclose(lazily.compute(), Z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [sp.csc_matrix, sp.coo_matrix])
@pytest.mark.parametrize("kind", ALL)
def test_blocks_of_other_sparse_formats(kind: type, make: Any) -> None:
    small = {"n_candidates": 40} if "n_candidates" in kind(4).get_params() else {}
    features = kind(4, random_state=0, **small).fit(lazy().map_blocks(make))
    Z = features.transform(lazy().map_blocks(make)).compute(scheduler="sync")
    np.testing.assert_allclose(Z, features.transform(X), rtol=1e-9, atol=1e-9)
    bad = X.copy()
    bad[57, 1] = np.nan
    with pytest.raises(ValueError, match="row 7, column 1 of block 1"):
        features.transform(lazy(bad).map_blocks(make)).compute(scheduler="sync")


def test_an_angle_that_overflows_in_one_column_only_is_found() -> None:
    far = (np.random.default_rng(0).normal(size=(200, 2)) * 1e36).astype(np.float32)
    said = []
    for seed in range(6):
        features = rf.RandomFeatures(500, kernel="laplacian", gamma=1.0, random_state=seed)
        try:
            assert np.isfinite(features.fit_transform(far)).all()
        except ValueError as error:
            said.append("too large for angles in float32" in str(error))
    assert said
    assert all(said)


def test_rows_no_two_of_which_are_alike() -> None:
    far = np.vstack([np.zeros((3, 1)), np.arange(1, 40.0)[:, None] * 100])
    found = set()
    for seed in range(6):
        features = rf.CompressedFeatures(5, n_candidates=60, gamma=1.0, refine=0, random_state=seed)
        try:
            features.fit(far)
        except ValueError as error:
            found.add("lower gamma" in str(error) or "check that gamma" in str(error))
        else:
            assert np.isfinite(features.heldout_error_)
    assert found == {True}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_whole_turns_are_refused(kind: type, dtype: Any) -> None:
    """From there on every cosine would be 1, and all rows would be alike."""
    features = (
        kind(16, gamma=1.0, n_candidates=64, random_state=0) if kind is not DRAWN[0] else None
    )
    features = (features or rf.RandomFeatures(16, gamma=1.0, random_state=0)).fit(X)
    far = X.astype(dtype) / np.finfo(dtype).eps
    for rows in (far * 100, da.from_array(far * 100, chunks=(50, 5))):
        with pytest.raises(ValueError, match=f"too large for angles in {np.dtype(dtype)}"):
            np.asarray(features.transform(rows))
    assert np.std(features.transform(far / 1000), axis=0).min() > 0


@pytest.mark.parametrize("kind", [*ALL, rf.SGDClassifier, rf.KernelClassifier, rf.Standardizer])
def test_columns_of_one_name_are_refused(kind: type) -> None:
    twice = pd.DataFrame(X, columns=[*"abcda"])
    with pytest.raises(ValueError, match="X has the column 'a' twice"):
        kind().fit(twice, np.arange(len(X)) % 2)


def test_sparse_rows_in_another_order_of_bytes(tmp_path: Any) -> None:
    """As files of other machines have them; scipy computes with its own order only."""
    rows = sp.random(60, 5, 0.5, format="csr", random_state=0)
    swapped = rows.copy()
    swapped.data = rows.data.astype(">f8")
    features = rf.RandomFeatures(8, random_state=0).fit(rows)
    assert np.array_equal(features.transform(swapped), features.transform(rows))
    block = delayed(swapped)
    parts = da.from_delayed(block, rows.shape, float, meta=sp.csr_matrix((0, 0)))
    assert np.array_equal(features.transform(parts).compute(), features.transform(rows))
    sp.save_npz(tmp_path / "rows.npz", swapped)
    for place, source in enumerate([swapped, swapped.tocsc(), tmp_path / "rows.npz", parts]):
        store = rf.ingest(source, tmp_path / f"{place}.zarr", label=False)
        assert abs(store.X.compute() - rows).max() == 0
    with pytest.raises(ValueError, match=r"rows.npz has no array array\(\["):
        rf.ingest(tmp_path / "rows.npz", tmp_path / "x.zarr", label=np.arange(60))

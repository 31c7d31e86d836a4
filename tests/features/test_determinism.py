"""The same seed and data give the same map, whatever the chunks, the workers or the scheduler."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

import rfcdask as rf
from rfcdask.kernels import runtime as threads

ROWS = 3000
X = np.random.default_rng(11).normal(size=(ROWS, 8)).astype(np.float32)
y = (np.linalg.norm(X, axis=1) > 2.7).astype(int)
CHUNKS = {
    "one": (ROWS,),
    "seven": tuple(np.diff([0, 1, 400, 401, 900, 2000, 2750, ROWS])),
    "fifty": tuple(np.diff(np.linspace(0, ROWS, 51).astype(int) + 7 * (np.arange(51) % 50 > 0))),
}
SETTINGS = {
    "default": {},
    "paper": {"n_pairs": 2000, "target": "candidates", "refit": False, "refine": 0},
    "labels": {"label_weight": 0.5, "phases": "paired", "solver": "pursuit"},
}


def make(**settings: object) -> rf.CompressedFeatures:
    return rf.CompressedFeatures(
        40, n_candidates=400, n_rows=800, random_state=5, **({"refine": 30} | settings)
    )


def same(a: rf.CompressedFeatures, b: rf.CompressedFeatures) -> None:
    np.testing.assert_array_equal(a.selected_, b.selected_)
    np.testing.assert_array_equal(a.error_path_.sampled, b.error_path_.sampled)
    np.testing.assert_array_equal(a.error_path_.heldout, b.error_path_.heldout)
    for name in ("frequencies_", "phases_", "weights_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_and_schedulers(settings: str, chunks: str, cluster_client: Client) -> None:
    expected = make(**SETTINGS[settings]).fit(X, y)
    lazy = da.from_array(X, chunks=(CHUNKS[chunks], (8,)))
    labels = da.from_array(y, chunks=(CHUNKS[chunks],))
    for scheduler in ("threads", "synchronous"):
        with dask.config.set(scheduler=scheduler):
            same(make(**SETTINGS[settings]).fit(lazy, labels), expected)
    on_cluster = make(**SETTINGS[settings]).fit(lazy, labels, client=cluster_client)
    same(on_cluster, expected)
    Z = cluster_client.compute(on_cluster.transform(lazy), sync=True)
    np.testing.assert_allclose(Z, expected.transform(X), atol=1e-5)


def test_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    two = make().fit(X)
    monkeypatch.setattr(threads, "available_cpus", lambda: 1)
    one = make().fit(X)
    same(one, two)
    np.testing.assert_array_equal(one.frequencies_, two.frequencies_)
    np.testing.assert_array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize("seed", [0, np.random.RandomState(3), None])
def test_kinds_of_random_state(seed: object) -> None:
    features = rf.RandomFeatures(10, random_state=seed).fit(X)
    again = rf.RandomFeatures(10, random_state=features.seed_).fit(X)
    np.testing.assert_array_equal(features.frequencies_, again.frequencies_)


def test_candidates_are_the_random_features_of_the_same_seed() -> None:
    chosen = make(refine=0).fit(X)
    plain = rf.RandomFeatures(400, gamma=chosen.gamma_, random_state=5).fit(X)
    np.testing.assert_array_equal(chosen.frequencies_, plain.frequencies_[:, chosen.selected_])
    np.testing.assert_array_equal(chosen.phases_, plain.phases_[chosen.selected_])


def test_gamma_rules_are_the_same_on_dask() -> None:
    lazy = da.from_array(X, chunks=(700, 8))
    for rule in ("scale", "median"):
        on_numpy = rf.RandomFeatures(4, gamma=rule, random_state=1).fit(X).gamma_
        assert rf.RandomFeatures(4, gamma=rule, random_state=1).fit(lazy).gamma_ == on_numpy
    scale = rf.RandomFeatures(4, gamma="scale", random_state=1).fit(X).gamma_
    assert scale == pytest.approx(1 / (8 * X.var(dtype=np.float64)), rel=1e-9)

"""Lazy rows written through the stream come back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.linear import write_zarr
from tests.linear_data import blobs, lazy


@pytest.mark.parametrize("place", ["here", "cluster"])
def test_features_and_labels_come_back(place: str, tmp_path: Path, cluster_client: Any) -> None:
    X, y = blobs(1050, 4, 3)
    client = cluster_client if place == "cluster" else None
    Z = rf.RandomFeatures(20, random_state=0).fit(X).transform(lazy(X, 100))
    stored = write_zarr(Z, tmp_path / "Z.zarr", client=client)
    assert stored.chunks == Z.chunks
    assert stored.dtype == np.float32
    assert np.array_equal(stored.compute(), Z.compute())
    predicted = rf.Ridge().fit(Z, y).predict(Z)
    assert np.array_equal(
        write_zarr(predicted, tmp_path / "p.zarr", client=client).compute(), predicted.compute()
    )


def test_nothing_is_overwritten_and_odd_chunks_are_named(tmp_path: Path) -> None:
    X, _ = blobs(100, 4, 3)
    write_zarr(lazy(X, 30), tmp_path / "X.zarr")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_zarr(lazy(X, 30), tmp_path / "X.zarr")
    again = write_zarr(lazy(X + 1, 50), tmp_path / "X.zarr", overwrite=True)
    assert np.array_equal(again.compute(), X + 1)
    with pytest.raises(ValueError, match=r"rechunk\(\{0: 60\}\)"):
        write_zarr(lazy(X, (40, 60)), tmp_path / "odd.zarr")

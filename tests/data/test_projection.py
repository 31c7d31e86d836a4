"""Very sparse random projection: entries, unbiasedness, memory, and rows that come later."""

from __future__ import annotations

import numpy as np
import pytest
from data_helpers import run_measured, same_bits
from scipy import sparse

import rfcdask as rf
from rfcdask.data.views import draw_projection


def test_entries_have_the_values_and_frequencies_of_the_method():
    columns, kept = 10_000, 50
    matrix = draw_projection(columns, kept, seed=0).matrix
    s = np.sqrt(columns)
    np.testing.assert_allclose(
        np.unique(matrix.data), [-np.sqrt(s / kept), np.sqrt(s / kept)], rtol=1e-6
    )
    expected = columns * kept / s
    spread = np.sqrt(expected)
    assert abs(matrix.nnz - expected) < 4 * spread
    assert abs((matrix.data > 0).sum() - expected / 2) < 4 * spread
    assert matrix.shape == (columns, kept)


def test_inner_products_are_unbiased():
    draw = np.random.default_rng(0)
    rows = sparse.random(2, 2000, density=0.05, random_state=draw, format="csr")
    exact = (rows @ rows.T).toarray()
    seeds = 300
    found = np.empty((seeds, 2, 2))
    for seed in range(seeds):
        Z = draw_projection(2000, 100, seed).transform(rows).astype(np.float64)
        found[seed] = Z @ Z.T
    error = found.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert np.all(np.abs(found.mean(axis=0) - exact) < 3 * error)
    # The test can fail: the standard error is small against the products themselves.
    assert np.all(error[[0, 1], [0, 1]] < 0.05 * exact[[0, 1], [0, 1]])


def test_projected_rows_are_the_product_with_the_stored_matrix(tmp_path):
    draw = np.random.default_rng(0)
    X = sparse.random(300, 4000, density=0.01, random_state=draw, format="csr")
    y = np.arange(300) % 2
    ds = rf.ingest((X, y), tmp_path / "a.zarr", project=20, random_state=3, block_size=4000)
    assert ds.X.shape == (300, 20)
    assert ds.X.dtype == np.float32
    dense = X.toarray() @ ds.projection.matrix.toarray().astype(np.float64)
    np.testing.assert_allclose(ds.X.compute(), dense, rtol=1e-4, atol=1e-4)
    again = rf.open_dataset(tmp_path / "a.zarr").projection
    assert same_bits(again.matrix.toarray(), draw_projection(4000, 20, 3).matrix.toarray())
    assert again.seed == 3
    # New rows, dense or sparse, are projected alike.
    assert same_bits(again.transform(X[:7]), ds.X[:7].compute())
    assert same_bits(again.transform(X[:7].toarray()), ds.X[:7].compute())
    with pytest.raises(
        rf.data.DataError, match="4001 columns, but this projection was drawn for 4000"
    ):
        again.transform(np.ones((1, 4001)))


def test_fewer_columns_are_taken_for_zeros_at_the_end(tmp_path):
    projection = draw_projection(100, 5, 0)
    short = sparse.csr_matrix(np.eye(3, 60))
    assert np.array_equal(projection.transform(short), projection.transform(np.eye(3, 100)))


def test_rows_of_every_type_are_projected(tmp_path):
    """Of float16 scipy makes no sparse matrix."""
    X = np.random.default_rng(0).normal(size=(20, 6)).astype("float16")
    for number, kind in enumerate(("float16", "float32", "float64", "int8", "bool")):
        rows = X.astype(kind)
        written = rf.ingest(rows, tmp_path / f"{number}.zarr", project=2, random_state=0)
        lazy = rf.ingest(rows, tmp_path / f"{number}-wide.zarr").project(2, 0)
        expected = rows.astype(np.float32) @ written.projection.matrix.toarray()
        for found in (written.X.compute(), lazy.X.compute()):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_seed_decides_and_chunks_do_not(tmp_path):
    X = sparse.random(500, 1000, density=0.05, random_state=np.random.default_rng(0), format="csr")
    first = rf.ingest(X, tmp_path / "a.zarr", project=8, random_state=1, block_size=1000)
    chunks = rf.ingest(X, tmp_path / "b.zarr", project=8, random_state=1, block_size=7000)
    other = rf.ingest(X, tmp_path / "c.zarr", project=8, random_state=2)
    assert same_bits(first.X.compute(), chunks.X.compute())
    assert not np.array_equal(first.X.compute(), other.X.compute())
    # The same place with another seed: nothing of the old matrix may be left.
    redone = rf.ingest(X, tmp_path / "a.zarr", project=8, random_state=2, overwrite=True)
    assert same_bits(redone.X.compute(), other.X.compute())


def test_projected_svmlight_text_equals_projected_rows(tmp_path):
    X = sparse.random(200, 900, density=0.05, random_state=np.random.default_rng(0), format="csr")
    y = np.arange(200) % 2
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    text = rf.ingest(
        tmp_path / "a.svm", tmp_path / "t.zarr", project=10, random_state=0, n_columns=900
    )
    rows = rf.ingest((X, y), tmp_path / "r.zarr", project=10, random_state=0)
    np.testing.assert_allclose(text.X.compute(), rows.X.compute(), rtol=1e-6)
    assert "projected from  900 columns" in repr(text)


def test_a_copied_store_keeps_its_projection(tmp_path):
    X = sparse.random(100, 500, density=0.1, random_state=np.random.default_rng(0), format="csr")
    first = rf.ingest(X, tmp_path / "a.zarr", project=6, random_state=0)
    copy = rf.ingest(first, tmp_path / "b.zarr", shuffle=True, random_state=0)
    assert same_bits(copy.projection.matrix.toarray(), first.projection.matrix.toarray())


def test_lazy_sparse_blocks_project_like_the_data_set(tmp_path):
    ds = rf.synthetic("criteo", rows=20_000, random_state=1, block_size=2**21)
    lazy = rf.ingest(
        ds.X, tmp_path / "a.zarr", label=ds.y, project=30, random_state=0, block_size=2**20
    )
    straight = rf.ingest(ds, tmp_path / "b.zarr", project=30, random_state=0)
    assert same_bits(lazy.X.compute(), straight.X.compute())
    assert same_bits(lazy.y.compute(), straight.y.compute())


PROJECT = """
import json, sys, rfcdask as rf
ds = rf.synthetic("criteo", rows=20_000, dest=sys.argv[1], project=250)
print(json.dumps({"shape": ds.X.shape, "source": ds.projection.n_columns}))
"""


def test_criteos_shape_projects_without_a_dense_array(tmp_path):
    """20,000 dense rows of a million float32 columns are 80 GB; 300 of them are 1.2 GB."""
    peak, said = run_measured(PROJECT, tmp_path / "a.zarr")
    print(f"\npeak {peak / 2**20:.0f} MiB")
    assert said == {"shape": [20_000, 250], "source": 1_000_000}
    assert peak < 1.2e9

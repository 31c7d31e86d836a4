"""Synthetic data of any size, in the shape of HIGGS and of Criteo, block by block from a seed.

Rows come in units of 8,192, each from a seed of its own, so any block can be made anywhere, in any
order, and the same row is the same whatever the blocks. The label is the product of two hidden
signs (or a difference of squares): an even function of what drives the columns, so that a linear
model is left with chance while a kernel machine sees the clusters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError
from rfcdask.data.ingest import ingest
from rfcdask.data.layout import BLOCK_BYTES, size_in_bytes, whole_number
from rfcdask.kernels.arrays import CSR, Array, IntArray, Matrix
from rfcdask.kernels.seeds import seed_of

UNIT = 8192
FLIPPED = 0.05
"""Share of labels that are wrong on purpose."""


@dataclass(frozen=True)
class Kind:
    """Shape of one kind of synthetic data."""

    number: int
    rows: int
    columns: int
    row_bytes: int


KINDS = {
    "higgs": Kind(0, 11_000_000, 28, 28 * 4),
    "criteo": Kind(1, 51_882_752, 1_000_000, 39 * 8 + 8),
}

_HIDDEN = 4
_FIELDS, _NUMERIC = 39, 13
_WIDTH = KINDS["criteo"].columns // _FIELDS


@dataclass(frozen=True)
class SyntheticReader:
    """Makes blocks instead of reading them."""

    kind: str
    n_rows: int
    seed: int
    block_rows: int
    run_rows: int = UNIT

    @property
    def sizes(self) -> tuple[int, ...]:
        starts = range(0, self.n_rows, self.block_rows)
        return tuple(min(self.block_rows, self.n_rows - start) for start in starts)

    @property
    def n_columns(self) -> int:
        return KINDS[self.kind].columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def label_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int8)

    @property
    def n_targets(self) -> None:
        return None

    @property
    def row_bytes(self) -> int:
        return KINDS[self.kind].row_bytes

    def block(self, block: int) -> Any:
        return self.rows(block, np.arange(self.sizes[block]))[0]

    def labels(self, block: int) -> Array:
        return self.rows(block, np.arange(self.sizes[block]))[1]

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array]:
        # Only the units that hold these rows are made.
        wanted = np.asarray(local) + block * self.block_rows
        units, inverse = np.unique(wanted // UNIT, return_inverse=True)
        made = [make_unit(self.kind, self.seed, int(unit)) for unit in units]
        places = inverse * UNIT + wanted % UNIT
        labels = np.concatenate([y for _, y in made])
        if self.kind == "criteo":
            rows: Matrix = sparse.vstack([X for X, _ in made], format="csr")
        else:
            rows = np.concatenate([X for X, _ in made])
        if np.array_equal(places, np.arange(len(labels))):
            return rows, labels
        return rows[places], labels[places]


def make_unit(kind: str, seed: int, unit: int) -> tuple[Any, Array]:
    """Make one unit of rows and labels."""
    draw = np.random.default_rng([seed, KINDS[kind].number, 1 + unit])
    X, y = _higgs(draw, seed) if kind == "higgs" else _criteo(draw)
    flip = draw.random(UNIT) < FLIPPED
    return X, np.where(flip, 1 - y, y).astype(np.int8)


def _higgs(draw: np.random.Generator, seed: int) -> tuple[Array, Array]:
    """Four hidden numbers mixed into 28 columns; the label compares their squares."""
    columns = KINDS["higgs"].columns
    mixing = np.random.default_rng([seed, KINDS["higgs"].number, 0]).standard_normal(
        (_HIDDEN, columns), np.float32
    )
    hidden = draw.standard_normal((UNIT, _HIDDEN), np.float32)
    X = hidden @ (mixing / np.float32(np.sqrt(_HIDDEN)))
    X += np.float32(0.5) * draw.standard_normal((UNIT, columns), np.float32)
    squares = hidden**2
    return X, (squares[:, :2].sum(axis=1) > squares[:, 2:].sum(axis=1)).astype(np.int8)


def _criteo(draw: np.random.Generator) -> tuple[CSR, Array]:
    """39 fields with one column each switched on, of unit norm together.

    The 13 numeric fields have few common values; half of them follow one hidden sign, half the
    other, and the label is their product. The 26 categorical fields have a long tail: the value of
    rank r occurs about 1/r as often as the first.
    """
    signs = draw.integers(0, 2, (UNIT, 2))
    ranks = np.empty((UNIT, _FIELDS), np.int64)
    common = np.minimum(draw.geometric(0.5, (UNIT, _NUMERIC)) - 1, _WIDTH // 2 - 1)
    ranks[:, :_NUMERIC] = 2 * common + signs[:, np.arange(_NUMERIC) % 2]
    tail = draw.random((UNIT, _FIELDS - _NUMERIC))
    ranks[:, _NUMERIC:] = np.minimum(np.floor(_WIDTH**tail) - 1, _WIDTH - 1)
    columns = (ranks + np.arange(_FIELDS) * _WIDTH).astype(np.int32).reshape(-1)
    values = np.full(columns.size, 1 / np.sqrt(_FIELDS), np.float32)
    indptr = np.arange(0, columns.size + 1, _FIELDS, dtype=np.int32)
    X = sparse.csr_matrix((values, columns, indptr), shape=(UNIT, KINDS["criteo"].columns))
    return X, (signs[:, 0] ^ signs[:, 1]).astype(np.int8)


def synthetic(
    kind: str,
    rows: int | None = None,
    *,
    random_state: Any = 0,
    dest: str | os.PathLike[str] | None = None,
    block_size: int | str = BLOCK_BYTES,
    **options: Any,
) -> Dataset:
    """Make data in the shape of HIGGS or Criteo with labels that only a kernel machine can learn.

    Parameters
    ----------
    kind : {"higgs", "criteo"}
        28 dense columns, or 1,000,000 sparse ones with 39 non-zeros per row (blocks are CSR).
    rows : int, optional
        How many; by default as many as the real data set has. The first rows are the same
        whatever the number.
    random_state : int, Generator, RandomState or None
        Seed.
    dest : path or URL, optional
        Write a store there; without it the data set is lazy and lies nowhere.
    block_size : int or str
        Bytes of one block, such as ``"16MB"``.
    **options
        Passed to :func:`rfcdask.ingest` when there is a `dest`, such as ``project=250``.

    Returns
    -------
    Dataset
        Lazy rows and labels 0 and 1, five percent of them wrong.

    Examples
    --------
    >>> import rfcdask as rf
    >>> rf.synthetic("higgs", rows=20_000).X.shape
    (20000, 28)
    """
    if kind not in KINDS:
        raise DataError(f"kind={kind!r} is not one of {', '.join(KINDS)}.")
    n_rows = KINDS[kind].rows if rows is None else whole_number("rows", rows)
    if n_rows < 1:
        raise DataError(f"rows={rows}: ask for at least one row.")
    block_bytes = size_in_bytes(block_size)
    block_rows = UNIT * max(1, block_bytes // (UNIT * KINDS[kind].row_bytes))
    reader = SyntheticReader(kind, n_rows, seed_of(random_state), block_rows)
    # Rows are independent draws, so any positions are a uniform sample, as in a shuffled store.
    attrs = {
        "name": f"synthetic {kind}",
        "n_rows": n_rows,
        "n_columns": reader.n_columns,
        "classes": [0, 1],
        "task": "classification",
        "shuffled": True,
        "seed": reader.seed,
    }
    meta = sparse.csr_matrix(np.empty((0, 0), np.float32)) if kind == "criteo" else None
    dataset = Dataset(reader, attrs, meta=meta)
    if dest is None:
        if options:
            raise DataError(f"{', '.join(options)} need a store: pass dest= as well.")
        return dataset
    if kind == "criteo" and options.get("project") is None:
        raise DataError(
            "a million columns do not fit a dense store: pass project=250 for a store, or leave "
            "dest= out for lazy sparse blocks."
        )
    return ingest(dataset, dest, block_size=block_bytes, random_state=random_state, **options)

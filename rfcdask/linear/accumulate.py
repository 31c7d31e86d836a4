"""One pass over blocks that gives their moments: the Dask side of `moments`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from rfcdask.execution.blocks import consecutive_groups, stream_folds
from rfcdask.execution.executor import open_executor
from rfcdask.execution.progress import track
from rfcdask.features.deferred import DeferredRows, deferred
from rfcdask.kernels.seeds import held_out_by_number
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.inputs import (
    as_matrix,
    check_weights,
    dense,
    locate,
    make_blocks,
    require_good_weights,
)
from rfcdask.linear.labels import encode
from rfcdask.linear.moments import Moments

PARTS = 64
"""Into how many sums the blocks are folded, so that few J x J matrices travel."""

Split = tuple[Moments | None, Moments | None]
"""Moments of the rows to learn from and of those held out; None stands for no rows yet."""


@dataclass(frozen=True)
class Fold:
    """Adds one block to the moments; a pure function that travels to the workers."""

    targets: int
    starts: Array
    weighted: bool = False
    held_out: float = 0.0
    seed: int = 0
    classes: Array | None = None
    class_weights: Array = field(default_factory=lambda: np.ones(0))

    def __call__(self, state: Split, block: tuple[Any, ...], index: int) -> Split:
        """Return the moments with those of one block added."""
        Z = block[0]
        if self.held_out or not isinstance(Z, DeferredRows):
            Z = dense(Z)
        Y, weights = self._targets(block, len(Z), index)
        start = int(self.starts[index])
        if not self.held_out:
            return self._add(state[0], Z, Y, weights, index), state[1]
        away = held_out_by_number(start, len(Z), self.held_out, self.seed)
        parts = []
        for old, rows in zip(state, (~away, away), strict=True):
            some = None if weights is None else weights[rows]
            parts.append(self._add(old, Z[rows], Y[rows], some, index) if rows.any() else old)
        return parts[0], parts[1]

    def _add(
        self,
        old: Moments | None,
        Z: Array | DeferredRows,
        Y: Array,
        weights: Array | None,
        index: int,
    ) -> Moments:
        with np.errstate(invalid="ignore", over="ignore"):
            new = Moments.of(Z, Y, weights)
        if not (np.isfinite(np.diag(new.scatter)).all() and np.isfinite(new.cross).all()):
            raise locate(np.asarray(Z), Y, index, int(self.starts[index])) or ValueError(
                f"Sums of squares overflow in block {index}; scale the columns of X down."
            )
        return new if old is None else old.merge(new)

    def _targets(self, block: tuple[Any, ...], n: int, index: int) -> tuple[Array, Array | None]:
        weights = np.asarray(block[-1], float) if self.weighted else None
        if weights is not None:
            require_good_weights(weights, index)
        if not self.targets:
            return np.zeros((n, 0)), weights
        y = np.asarray(block[1])
        if self.classes is None:
            return (y[:, None] if y.ndim == 1 else y).astype(float), weights
        codes = encode(y, self.classes)
        factors = self.class_weights[codes]
        signs = np.where(codes[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        if not np.all(self.class_weights == 1.0):
            weights = factors if weights is None else weights * factors
        return signs[:, 1:] if self.targets == 1 else signs, weights


def collect(
    X: DaskArray, columns: tuple[DaskArray | None, ...], fold: Fold, client: Any, progress: Any
) -> tuple[Moments, Moments]:
    """Go once over all blocks and return the moments of rows learned from and held out."""
    blocks = make_blocks(deferred(X), *columns)
    size = -(-len(blocks) // PARTS)
    groups = consecutive_groups(len(blocks), size)
    nothing = Moments.empty(X.shape[1], fold.targets)
    total = (nothing, nothing)
    with (
        open_executor(client) as runner,
        track("summing", float(X.shape[0]), "rows", progress=progress) as reporter,
    ):
        parts = stream_folds(runner, blocks, groups, fold, (None, None))
        for group, part in zip(groups, parts, strict=True):
            total = (total[0].merge(part[0] or nothing), total[1].merge(part[1] or nothing))
            reporter.advance(sum(blocks.rows[index] for index in group))
    return total


def matrix_and_weights(
    estimator: Any, X: Any, sample_weight: Any, reset: bool
) -> tuple[DaskArray, DaskArray | None, Array]:
    """Return checked X and weights, and the number of the first row of each block."""
    matrix = as_matrix(X, estimator)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    starts = np.cumsum([0, *matrix.chunks[0]]).astype(np.int64)
    return matrix, check_weights(sample_weight, matrix), starts

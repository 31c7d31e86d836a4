"""One pass over blocks that gives their moments: the Dask side of `moments`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rfcdask.execution.blocks import first_rows, fold_blocks
from rfcdask.features.evaluators import FeatureRows
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray
from rfcdask.kernels.seeds import held_out_by_number
from rfcdask.linear.checks import check_block_weights, dense, encode_labels, find_not_finite
from rfcdask.linear.moments import Moments

PARTS = 64
"""Into how many sums the blocks are folded, so that few J x J matrices travel."""

Split = tuple[Moments | None, Moments | None]
"""Moments of the rows to learn from and of those held out; None stands for no rows yet."""


def accumulate_moments(
    X: DaskArray,
    y: DaskArray | None = None,
    weights: DaskArray | None = None,
    *,
    classes: Array | None = None,
    class_weights: Array | None = None,
    validation_fraction: float = 0.0,
    seed: int = 0,
    client: Any = None,
    progress: Any = None,
) -> tuple[Moments, Moments]:
    """Go once over all blocks and return the moments of rows learned from and held out.

    With `classes`, targets are one column per class of +1 and -1, or a single one for two classes.
    Features of a map are evaluated a few rows at a time.
    """
    n_targets = 0
    if y is not None:
        n_targets = 1 if y.ndim == 1 else int(y.shape[1])
    if classes is not None and len(classes) > 2:
        n_targets = len(classes)
    fold = _AddBlock(
        n_targets,
        first_rows(X),
        weights is not None,
        validation_fraction,
        seed,
        classes,
        class_weights,
    )
    rows = X.unevaluated() if isinstance(X, FeatureArray) else X
    nothing = Moments.empty(X.shape[1], n_targets)
    total = (nothing, nothing)
    for part in fold_blocks(
        (rows, y, weights),
        fold,
        (None, None),
        client,
        "summing",
        group_size=-(-X.numblocks[0] // PARTS),
        progress=progress,
    ):
        total = (total[0].merge(part[0] or nothing), total[1].merge(part[1] or nothing))
    return total


@dataclass(frozen=True)
class _AddBlock:
    """Adds one block to the moments; a pure function that travels to the workers."""

    n_targets: int
    starts: Array
    weighted: bool
    validation_fraction: float
    seed: int
    classes: Array | None
    class_weights: Array | None

    def __call__(self, state: Split, block: tuple[Any, ...], index: int) -> Split:
        Z = block[0] if isinstance(block[0], FeatureRows) else dense(block[0])
        Y, weights = self._targets(block, len(Z), index)
        start = int(self.starts[index])
        try:
            return self._split(state, Z, Y, weights, start)
        except FloatingPointError:
            raise find_not_finite(np.asarray(Z), Y, index, start) or ValueError(
                f"Sums of squares overflow in block {index}; scale the columns of X down."
            ) from None

    def _split(
        self, state: Split, Z: Array | FeatureRows, Y: Array, weights: Array | None, start: int
    ) -> Split:
        if not self.validation_fraction:
            return _add(state[0], Z, Y, weights), state[1]
        held_out = held_out_by_number(start, len(Z), self.validation_fraction, self.seed)
        parts = []
        for old, rows in zip(state, (~held_out, held_out), strict=True):
            some = None if weights is None else weights[rows]
            taken = Z.take(rows) if isinstance(Z, FeatureRows) else Z[rows]
            parts.append(_add(old, taken, Y[rows], some) if rows.any() else old)
        return parts[0], parts[1]

    def _targets(self, block: tuple[Any, ...], n: int, index: int) -> tuple[Array, Array | None]:
        weights = np.asarray(block[-1], float) if self.weighted else None
        if weights is not None:
            check_block_weights(weights, index)
        if not self.n_targets:
            return np.zeros((n, 0)), weights
        y = np.asarray(block[1])
        if self.classes is None:
            return (y[:, None] if y.ndim == 1 else y).astype(float), weights
        codes = encode_labels(y, self.classes)
        signs = np.where(codes[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        if self.class_weights is not None and not np.all(self.class_weights == 1.0):
            factors = self.class_weights[codes]
            weights = factors if weights is None else weights * factors
        return signs[:, 1:] if self.n_targets == 1 else signs, weights


def _add(old: Moments | None, Z: Array | FeatureRows, Y: Array, weights: Array | None) -> Moments:
    with np.errstate(invalid="ignore", over="ignore"):
        new = Moments.of(Z, Y, weights)
    if not (np.isfinite(np.diag(new.scatter)).all() and np.isfinite(new.cross).all()):
        raise FloatingPointError("sums are not finite")
    return new if old is None else old.merge(new)

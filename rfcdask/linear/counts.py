"""What metrics are made of: counts and sums of one block of rows that can be merged; numpy only.

Whatever the blocks, merged counts are those of all rows. The metrics themselves are scikit-learn's:
a pair of labels with the number of its rows as a weight says as much as the rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rfcdask.kernels.arrays import LEAST_SQUARE, Array, NotFiniteError
from rfcdask.linear.rows import (
    ClassPredictor,
    LinearScores,
    check_block_weights,
    check_total_weight,
    encode_labels,
    tiles,
)

MOST_SCORES = 2**20
"""Different scores that are kept as they are; more are put into about as many bins."""
FEW_ROWS = 10
"""Of a class with fewer rows than this nobody can tell whether it is never predicted."""


class NeverPredictedWarning(UserWarning):
    """A class that has rows, and that a classifier never predicts."""


class ConfusionCounts(NamedTuple):
    """The pairs of true and predicted label that occur, and the weight of the rows of each."""

    true: Array
    predicted: Array
    weights: Array

    @classmethod
    def of(cls, true: Array, predicted: Array, weights: Array | None = None) -> ConfusionCounts:
        """Count pairs; without weights the counts are whole numbers."""
        true, predicted = np.asarray(true), np.asarray(predicted)
        try:
            if (true.dtype.kind in "biuf") != (predicted.dtype.kind in "biuf"):
                np.sort(np.array([*true[:1], *predicted[:1]], object))  # numpy would make both text
            labels = np.union1d(true, predicted)
        except TypeError:
            raise ValueError(
                "True and predicted labels cannot be compared; make them all strings or all numbers"
                ", for instance y.astype(str)."
            ) from None
        if labels.dtype.kind == "O" and len(labels) and not isinstance(labels[0], str):
            labels = np.array(labels.tolist())  # which scikit-learn takes, of Python's own numbers
        whole = {true.dtype.kind, predicted.dtype.kind} & {*"iu"}
        if labels.dtype.kind == "f" and whole and np.abs(labels).max(initial=0) >= 2.0**53:
            raise ValueError(
                "Labels beyond 2**53 are the same as floating point; give true and predicted ones "
                "as whole numbers."
            )
        if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
            raise ValueError(
                "Labels are continuous numbers, which no metric of classes can handle; use a metric"
                " of regression, such as r2_score."
            )
        k = len(labels)
        codes = np.searchsorted(labels, true) * k + np.searchsorted(labels, predicted)
        pairs, places = np.unique(codes, return_inverse=True)
        sums = np.bincount(places, weights, len(pairs))
        return cls(labels[pairs // max(k, 1)], labels[pairs % max(k, 1)], sums)

    def merge(self, other: ConfusionCounts) -> ConfusionCounts:
        """Return the counts of both sets of rows."""
        whole = self.weights.dtype.kind == "i" and other.weights.dtype.kind == "i"
        joined = [np.concatenate(pair) for pair in zip(self, other, strict=True)]
        found = ConfusionCounts.of(*joined)
        return found._replace(weights=found.weights.astype(np.int64)) if whole else found

    def accuracy(self) -> float:
        """Return the share of rows predicted right."""
        total = float(self.weights.sum())
        check_total_weight(total)
        return float(self.weights[self.true == self.predicted].sum()) / total

    def never_predicted(self) -> list[Any]:
        """Return the labels that rows have, enough of them to tell, and that none is given."""
        labels = np.unique(self.true)  # of pandas these are objects, Python's own text
        rows = [self.weights[self.true == label].sum() for label in labels]
        given = set(self.predicted[self.weights > 0].tolist())
        pairs = zip(labels.tolist(), rows, strict=True)
        return [label for label, n in pairs if n >= FEW_ROWS and label not in given]


def never_predicted_message(labels: Sequence[Any]) -> str:
    """Return one sentence about classes that are never predicted, and what may help."""
    shown = ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")
    what = "Class" if len(labels) == 1 else f"{len(labels)} classes"
    verb = "is" if len(labels) == 1 else "are"
    return (
        f"{what} {shown} {verb} never predicted, though there are rows of it: look at the recall "
        "of each class, and fit with class_weight='balanced' if rare classes matter."
    )


class Bins(NamedTuple):
    """Scores in ascending order and the weight of positive and negative rows at each.

    `moved` bounds the weights of positive and of negative rows whose order relative to any one
    score may have been lost, by putting scores together.
    """

    scores: Array
    positive: Array
    negative: Array
    moved: Array

    @classmethod
    def joined(cls, parts: Sequence[Bins]) -> Bins:
        """Put rows of the same score together."""
        every, positive, negative = (np.concatenate([part[i] for part in parts]) for i in range(3))
        scores, places = np.unique(every, return_inverse=True)
        sums = [np.bincount(places, weights, len(scores)) for weights in (positive, negative)]
        moved = np.sum([part.moved for part in parts], axis=0)
        return cls(scores, sums[0], sums[1], moved)

    def fewer(self, n_bins: int) -> Bins:
        """Put neighbours together so that no bin of several scores has more than 4 / n_bins.

        That is the sum of its shares of all positive and of all negative rows. A score with more
        than 2 / n_bins of them stays alone, so there are at most 2 n_bins + 1 bins.
        """
        sides = np.stack([self.positive, self.negative])
        shares = (sides / np.maximum(sides.sum(1, keepdims=True), 1e-300)).sum(0)
        number = np.floor((np.cumsum(shares) - shares) * (n_bins / 2))
        heavy = shares > 2 / n_bins
        first = np.concatenate([[True], (np.diff(number) > 0) | heavy[1:] | heavy[:-1]])
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(sides, starts, axis=1)
        ends = np.append(starts[1:], len(number))
        several = ends - starts > 1
        moved = self.moved + np.where(several, sums, 0.0).max(axis=1)
        return Bins(self.scores[ends - 1], sums[0], sums[1], moved)


class RankedScores(NamedTuple):
    """Scores of positive and negative rows, for areas under curves, in bounded memory.

    While there are at most `most` different scores all of them are kept and every area is exact.
    More are put into bins when twice as many have come, and such bins again, as in a merge sort:
    `levels` has what was put together so many times, and the bound on errors grows with the
    logarithm of the number of rows.
    """

    levels: tuple[tuple[Bins, ...], ...]
    most: int

    @classmethod
    def of(
        cls, scores: Array, positive: Array, weights: Array | None, most: int = MOST_SCORES
    ) -> RankedScores:
        """Rank the rows of a block."""
        scores = np.asarray(scores, np.float64)
        if np.isnan(scores).any():
            raise ValueError(f"Scores contain NaN, first in row {np.argmax(np.isnan(scores))}.")
        weights = np.ones(len(scores)) if weights is None else weights
        split = np.where(positive, weights, 0.0), np.where(positive, 0.0, weights)
        return cls(((Bins(scores, *split, np.zeros(2)),),), most)._settled()

    def merge(self, other: RankedScores) -> RankedScores:
        """Return the ranks of both sets of rows."""
        depth = max(len(self.levels), len(other.levels))
        sides = [(*ranked.levels, *[()] * (depth - len(ranked.levels))) for ranked in (self, other)]
        levels = tuple((*a, *b) for a, b in zip(*sides, strict=True))
        return RankedScores(levels, self.most)._settled()

    def _settled(self) -> RankedScores:
        """Put together what a level has too much of."""
        levels = [list(level) for level in self.levels]
        for depth, parts in enumerate(levels):  # grows while it is gone through
            if sum(len(part.scores) for part in parts) <= 2 * self.most:
                continue
            whole = Bins.joined(parts)
            levels[depth] = [] if len(whole.scores) > self.most else [whole]
            if not levels[depth]:
                levels += [[]] if depth + 1 == len(levels) else []
                levels[depth + 1].append(whole.fewer(self.most))
        return RankedScores(tuple(map(tuple, levels)), self.most)

    def rows(self) -> tuple[Array, Array, Array]:
        """Return labels of 0 and 1, scores and weights, which give the metrics of all rows."""
        whole = self.whole()
        n = len(whole.scores)
        labels = np.repeat([1, 0], n)
        return labels, np.tile(whole.scores, 2), np.concatenate([whole.positive, whole.negative])

    def totals(self) -> tuple[float, float]:
        """Return the weight of all positive and of all negative rows."""
        parts = [part for level in self.levels for part in level]
        return sum(float(p.positive.sum()) for p in parts), sum(
            float(p.negative.sum()) for p in parts
        )

    def whole(self) -> Bins:
        """Return all scores or bins in one."""
        return Bins.joined([part for level in self.levels for part in level])

    def error_bounds(self) -> tuple[float, float]:
        """Return what the area under the ROC curve and average precision may be off at most."""
        whole = self.whole()
        totals = np.array([whole.positive.sum(), whole.negative.sum()])
        if not whole.moved.any() or not totals.all():
            return 0.0, 0.0
        # Precision at a threshold is off by the rows that moved there over all rows above it.
        above = np.cumsum((whole.positive + whole.negative)[::-1])[::-1]
        wrong = np.minimum(1.0, whole.moved.sum() / np.maximum(above - whole.moved.sum(), 1e-300))
        precision = float(whole.positive @ wrong / totals[0])
        return float((whole.moved / totals).sum()), precision + float(whole.moved[0] / totals[0])


def probability_losses(codes: Array, proba: Array, weights: Array | None) -> Array:
    """Return weight, log loss and Brier's loss of the rows of a block, summed.

    `codes` number the columns of `proba`; -1 stands for a class that has none.
    """
    n, k = proba.shape
    weights = np.ones(n) if weights is None else weights
    true = codes[:, None] == np.arange(k)
    eps = np.finfo(proba.dtype).eps
    chosen = np.where(codes < 0, 0.0, proba[np.arange(n), codes])
    log = -np.log(np.clip(chosen, eps, 1 - eps).astype(np.float64))
    brier = np.square(true - proba.astype(np.float64)).sum(1) + (codes < 0)
    return np.array([weights.sum(), weights @ log, weights @ (brier / 2 if k == 2 else brier)])


def rank_classes(
    classes: Array, y: Array, scores: Array, weights: Array | None, most: int = 0
) -> list[RankedScores]:
    """Rank a block's rows for each class that has a score."""
    y, scores = np.asarray(y), np.asarray(scores)
    if scores.ndim == 1:
        classes, scores = classes[-1:], scores[:, None]
    elif scores.shape[1] == 2:
        classes, scores = classes[-1:], scores[:, 1:]
    most = most or max(MOST_SCORES // len(classes), 2)
    pairs = zip(classes, scores.T, strict=True)
    return [RankedScores.of(column, y == label, weights, most) for label, column in pairs]


def merge_ranks(a: list[RankedScores], b: list[RankedScores]) -> list[RankedScores]:
    """Return the ranks of both sets of rows."""
    return [x.merge(y) for x, y in zip(a, b, strict=True)]


def metric_of_ranks(
    metric: Callable[..., Any], ranks: Sequence[RankedScores], average: Any, **options: Any
) -> Any:
    """Return a metric of two classes, or its mean over classes against the rest."""
    values, sizes = [], []
    for ranked in ranks:
        labels, scores, weights = ranked.rows()
        values.append(metric(labels, scores, sample_weight=weights, **options))
        sizes.append(weights[labels == 1].sum())
    if average is None and len(ranks) > 1:
        return np.array(values)
    if average == "weighted":  # a class without rows, whose area is NaN, weighs nothing
        return float(np.average(np.where(np.array(sizes) > 0, values, 0.0), weights=sizes))
    return float(np.average(values))


def class_losses(classes: Array, y: Array, proba: Array, weights: Array | None) -> Array:
    """Return the sums of `probability_losses` of a block with labels of any kind."""
    proba = np.asarray(proba)
    if proba.ndim == 1 or proba.shape[1] == 1:
        column = proba.reshape(-1, 1)
        proba = np.hstack([1 - column, column])
    if np.isnan(proba).any() or proba.min(initial=0) < 0 or proba.max(initial=1) > 1:
        raise ValueError("y_proba contains values that are no probabilities, from 0 to 1.")
    if (np.abs(proba.sum(1) - 1) > np.sqrt(np.finfo(proba.dtype).eps)).any():
        raise ValueError(
            "The rows of y_proba do not add up to one; make sure to pass probabilities."
        )
    return probability_losses(class_codes(np.asarray(y), classes), proba, weights)


def class_codes(y: Array, classes: Array) -> Array:
    """Return the number of each label among sorted classes, -1 for others."""
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[codes] == y, codes, -1)


class ClassCounts(NamedTuple):
    """What is counted of the rows of classes."""

    confusion: ConfusionCounts
    ranks: list[RankedScores]
    losses: Array

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of both sets of rows."""
        return ClassCounts(
            self.confusion.merge(other.confusion),
            merge_ranks(self.ranks, other.ranks),
            self.losses + other.losses,
        )


def count_classes(
    there: tuple[bool, ...], classes: Array, scores_are_proba: bool, *block: Any
) -> ClassCounts:
    """Count a block of labels, predicted labels, scores and probabilities, as far as there."""
    *given, weights = block
    rest = iter(given)
    y, predicted, scores, proba = (np.asarray(next(rest)) if one else None for one in there)
    if predicted is None:
        assert scores is not None  # only linear models are asked for scores alone
        predicted = classes[scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(int)]
    assert y is not None
    if scores is not None and not np.isfinite(scores).all():
        raise ValueError("Scores are NaN or infinite: look for such values in X.")
    proba = scores if scores_are_proba else proba
    # Of several classes only probabilities can be compared between rows: the scores of a
    # logistic model are the same model when a row's are all moved by any number.
    ranked = proba if proba is not None and len(classes) > 2 else scores
    return ClassCounts(
        ConfusionCounts.of(y, predicted, weights),
        [] if ranked is None else rank_classes(classes, y, ranked, weights),
        np.zeros(3) if proba is None else class_losses(classes, y, proba, weights),
    )


def target_errors(y: Array, predicted: Array, weights: Array | None) -> Array:
    """Return weight, mean and squares about it of each target, and squared and absolute errors."""
    y, predicted = (np.asarray(a, np.float64).reshape(len(a), -1) for a in (y, predicted))
    if y.shape != predicted.shape:  # which numpy would take for the same one several times
        raise ValueError(
            f"y has {y.shape[1]} target(s) per row and its predictions {predicted.shape[1]}; give "
            "all of them."
        )
    weights = np.ones(len(y)) if weights is None else weights
    weight = weights.sum()
    if not (np.isfinite(y).all() and np.isfinite(predicted).all()):
        raise ValueError("Targets or predictions contain NaN or infinity; leave such rows out.")
    if weight == 0:
        return np.zeros((5, y.shape[1]))
    miss, mean = y - predicted, weights @ y / weight
    with np.errstate(over="ignore"):  # `explained` says so
        squares, missed = weights @ (y - mean) ** 2, weights @ miss**2
    total = np.full(len(mean), weight)
    return np.array([total, mean, squares, missed, weights @ np.abs(miss)])


def merge_errors(a: Array, b: Array) -> Array:
    """Return the errors of two sets of rows together."""
    weight = a[0] + b[0]
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    apart = b[1] - a[1]
    squares = a[2] + b[2] + a[0] * share * apart**2
    return np.array([weight, a[1] + share * apart, squares, a[3] + b[3], a[4] + b[4]])


def explained(errors: Array, force_finite: bool = True) -> Array:
    """Return R^2 of each target from its errors, as scikit-learn has it.

    Of a target that never changes all is explained, or nothing; else that is NaN or -infinity.
    """
    weight, mean, spread, miss = errors[:4]
    if not np.isfinite(errors[:4]).all():
        raise ValueError("y or its predictions are too large to square: divide y by its size.")
    if np.any((spread < LEAST_SQUARE) & (miss < LEAST_SQUARE) & (errors[4] > 0)):
        raise ValueError("y and its predictions are too small to square: divide y by its size.")
    constant = spread <= weight * (8 * np.finfo(float).eps * mean) ** 2
    share = 1.0 - miss / np.where(constant, 1.0, spread)
    whole, nothing = (1.0, 0.0) if force_finite else (np.nan, -np.inf)
    return np.where(constant, np.where(miss == 0, whole, nothing), share)


@dataclass(frozen=True)
class FoldCounts:
    """Counts a block and merges that with what was counted before; travels to the workers."""

    count: Callable[..., Any]
    """``count(*arrays of the block, weights or None)``"""
    merge: Callable[[Any, Any], Any]
    weighted: bool

    def __call__(self, state: Any, block: tuple[Any, ...], index: int) -> Any:
        """Return the counts with those of another block, whose last array may be weights."""
        *arrays, weights = block if self.weighted else (*block, None)
        if not arrays[0].shape[0]:
            return state
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            check_block_weights(weights, index)
        try:
            found = self.count(*arrays, weights)
        except NotFiniteError as error:
            raise error.in_block(index) from None
        return found if state is None else self.merge(state, found)


def count_right(
    predictor: ClassPredictor, X: Any, y: Any, weights: Array | None
) -> ConfusionCounts:
    """Count the rows of a block by the numbers of true and predicted class."""
    predicted = np.concatenate([predictor.codes(rows) for rows in tiles(X)])
    true = encode_labels(np.asarray(y), predictor.classes)
    return ConfusionCounts.of(true, predicted, weights)


def sum_errors(scores: LinearScores, X: Any, y: Any, weights: Array | None) -> Array:
    """Sum the errors of predicted targets over the rows of a block."""
    predicted = np.concatenate([scores(rows) for rows in tiles(X)])
    return target_errors(y, predicted, weights)

"""What a wrong score costs: the slope of each loss, row by row, and its name for the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rfcdask.kernels.arrays import Array
from rfcdask.kernels.runtime import compiled

HINGE, SQUARED_HINGE, LOG, SOFTMAX, CRAMMER_SINGER, SQUARED, HUBER = range(7)

CLASSIFIER_LOSSES = {
    ("hinge", "ovr"): HINGE,
    ("hinge", "multinomial"): CRAMMER_SINGER,
    ("squared_hinge", "ovr"): SQUARED_HINGE,
    ("log_loss", "ovr"): LOG,
    ("log_loss", "multinomial"): SOFTMAX,
}
REGRESSOR_LOSSES = {"squared_error": SQUARED, "huber": HUBER}

CURVATURE = {SQUARED_HINGE: 2.0, SQUARED: 1.0, HUBER: 1.0}
"""The largest second derivative of losses whose slopes grow with the miss."""
STEP_GAIN = {SQUARED_HINGE: 0.5, LOG: 2.0, SOFTMAX: 2.0}
"""The step that suits each loss where it is not 1: about the inverse of its largest curvature."""


class Targets(NamedTuple):
    """What is to be predicted for some rows."""

    codes: Array  # (n,) class of each row; empty for regression
    values: Array  # (n, outputs); empty for classification
    weights: Array  # (n,) float32


@compiled()
def slopes_of_heads(
    scores: Array, targets: Targets, start: int, loss: int, epsilon: float, k: int, slopes: Array
) -> float:
    """Fill `slopes` with the derivative by each score of some rows; return the summed loss.

    Several models may stand side by side: column ``h * k + i`` of the scores is output i of model
    h. The loss is meant over them.
    """
    heads = scores.shape[1] // k
    shape = (scores.shape[0] * heads, k)
    flat, out = scores.reshape(shape), slopes.reshape(shape)
    # Loops, here and in what calls this, where numpy has a word: numba compiles them in a tenth of
    # the time, for which whoever fits a first model waits.
    weights = np.empty(shape[0], np.float32)
    for i in range(shape[0]):
        weights[i] = targets.weights[start + i // heads]
    if loss < SQUARED:
        codes = np.empty(shape[0], np.int64)
        for i in range(shape[0]):
            codes[i] = targets.codes[start + i // heads]
        return classification_slopes(flat, codes, weights, loss, out) / heads
    values = np.empty(shape, np.float64)
    for i in range(shape[0]):
        for j in range(k):
            values[i, j] = targets.values[start + i // heads, j]
    return regression_slopes(flat, values, weights, loss, epsilon, out) / heads


@compiled()
def classification_slopes(
    scores: Array, codes: Array, weights: Array, loss: int, slopes: Array
) -> float:
    """Fill `slopes` with the weighted derivative by each score; return the summed loss.

    One column of scores is the binary case, whose class 1 is the positive one.
    """
    n, n_outputs = scores.shape
    total = 0.0
    for i in range(n):
        if loss == SOFTMAX:
            total += _softmax_row(scores, codes, weights, i, slopes)
        elif loss == CRAMMER_SINGER:
            total += _crammer_singer_row(scores, codes, weights, i, slopes)
        else:
            for k in range(n_outputs):
                positive = codes[i] == (1 if n_outputs == 1 else k)
                sign = np.float32(1.0) if positive else np.float32(-1.0)
                cost, slope = _margin_loss(sign * scores[i, k], loss)
                slopes[i, k] = sign * slope * weights[i]
                total += cost * weights[i]
    return total


@compiled()
def _margin_loss(margin: float, loss: int) -> tuple[float, float]:
    """Return the loss at a margin and its derivative by the margin."""
    short = 1.0 - margin
    if loss == LOG:
        small = np.exp(-abs(margin))  # never overflows
        cost = np.log1p(small) + max(-margin, 0.0)
        slope = -small / (1.0 + small) if margin > 0 else -1.0 / (1.0 + small)
        return cost, slope
    if short <= 0.0:
        return 0.0, 0.0
    if loss == SQUARED_HINGE:
        return short * short, -2.0 * short
    return short, -1.0


@compiled()
def _softmax_row(scores: Array, codes: Array, weights: Array, i: int, slopes: Array) -> float:
    top = scores[i, 0]
    for k in range(1, scores.shape[1]):
        top = max(top, scores[i, k])
    total = 0.0
    for k in range(scores.shape[1]):
        total += np.exp(scores[i, k] - top)
    for k in range(scores.shape[1]):
        hit = 1.0 if codes[i] == k else 0.0
        slopes[i, k] = weights[i] * (np.exp(scores[i, k] - top) / total - hit)
    return float(weights[i] * (np.log(total) + top - scores[i, codes[i]]))


@compiled()
def _crammer_singer_row(
    scores: Array, codes: Array, weights: Array, i: int, slopes: Array
) -> float:
    own = codes[i]
    rival = 1 if own == 0 else 0
    for k in range(scores.shape[1]):
        slopes[i, k] = 0.0
        if k != own and scores[i, k] > scores[i, rival]:
            rival = k
    short = 1.0 - scores[i, own] + scores[i, rival]
    if short <= 0.0:
        return 0.0
    slopes[i, own] = -weights[i]
    slopes[i, rival] = weights[i]
    return float(weights[i] * short)


@compiled()
def regression_slopes(
    scores: Array, targets: Array, weights: Array, loss: int, epsilon: float, slopes: Array
) -> float:
    """Fill `slopes` with the weighted derivative by each prediction; return the summed loss."""
    total = 0.0
    for i in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            miss = scores[i, k] - targets[i, k]
            if loss == HUBER and abs(miss) > epsilon:
                slopes[i, k] = weights[i] * epsilon * np.sign(miss)
                total += weights[i] * epsilon * (abs(miss) - 0.5 * epsilon)
            else:
                slopes[i, k] = weights[i] * miss
                total += weights[i] * 0.5 * miss * miss
    return total

"""Steps of feature learning on mini-batches: gradient and Adam, in float32, by one thread.

The model is ``f(x) = A^T z(x) + c`` with ``z_j(x) = s_j cos(w_j . x + b_j)``. With F the slopes of
the loss by the outputs f, over the number of rows,

    dA = Z^T F,   dc = sum F,   D = (F A^T) * (-s sin(angles)),   dW = X^T D,   db = sum D.

Angles are in turns, as in the hot loop, and rows are centred and multiplied by the typical size
of a frequency (`InputScaling`), so that neither the units of X nor its origin change the training.
The scales s_j are folded into the small head matrices. CSR rows stay sparse: what their origin adds
to the angles is added to the phases.

The second half chooses the width of the kernel from which features begin to learn, by short trials.
With many rows a narrower start than the best width of a fixed map is right, because the features
then move to where they are needed. No property of the rows tells how much narrower. So several
widths are tried on the same rows: a short training each, judged on rows held out; the better ones
go on to a training on more rows (successive halving).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rfcdask.kernels.arrays import LEAST_SQUARE, Array, Matrix, is_sparse, vary
from rfcdask.kernels.exact import Kernel, Sum, check_gamma, rowwise
from rfcdask.kernels.hot_loop import cosine_in_place_and_sine32
from rfcdask.kernels.runtime import compiled
from rfcdask.linear.sgd.losses import Targets, slopes_of_heads

if TYPE_CHECKING:
    from rfcdask.linear.kernel.optimize import (
        Judgement,
        OptimizerConfig,
        OptimizerState,
        TrainingRows,
    )

FREQUENCY_STEP = 0.05
"""Adam's step of a frequency, relative to their root mean square; of a phase, in radians."""
HEAD_STEP = 0.6
"""Adam's step of a coefficient, for features of length ``sqrt(2 / J)``."""
OPEN_RATE, OPEN_STEPS = 0.3, 300.0
"""Where the number of steps is not known: the first step size, and when it begins to fall."""
TURN = 2 * np.pi


class InputScaling(NamedTuple):
    """How raw rows become the rows that training multiplies: ``(x - origin) * unit``."""

    origin: Array  # (p,) float64
    unit: float  # typical frequency, in turns per unit of x


class Parameters(NamedTuple):
    """Everything that training changes, float32.

    Several heads, trained with different penalties, stand side by side in the columns of `heads`:
    column ``h * n_outputs + k`` is output k of head h.
    """

    frequencies: Array  # (p, J), in units of InputScaling.unit
    phases: Array  # (J,), in turns
    heads: Array  # (J, n_heads * n_outputs)
    intercepts: Array  # (n_heads * n_outputs,)

    def copy(self) -> Parameters:
        """Return the same values in new arrays."""
        return Parameters(*(value.copy() for value in self))

    def zeros(self) -> Parameters:
        """Return zeros of the same shapes."""
        return Parameters(*(np.zeros_like(value) for value in self))


class Adam(NamedTuple):
    """Running means of the gradient and of its square, and the steps behind them."""

    first: Parameters
    second: Parameters
    step: int = 0

    @classmethod
    def start(cls, parameters: Parameters) -> Adam:
        """Return the state before the first step."""
        return cls(parameters.zeros(), parameters.zeros())

    def copy(self) -> Adam:
        """Return the same values in new arrays."""
        return Adam(self.first.copy(), self.second.copy(), self.step)


class ScaledRows(NamedTuple):
    """Rows ``(x - origin) * unit`` as the kernels read them, or CSR ``x * unit``; and targets."""

    dense: Array  # (n, p) float32; (0, 0) for CSR
    data: Array  # of CSR, float32
    indices: Array
    indptr: Array  # one entry for dense rows
    targets: Targets

    @classmethod
    def of(cls, X: Matrix, targets: Targets, scaling: InputScaling) -> ScaledRows:
        """Scale raw rows."""
        none = np.zeros(0, np.float32)
        if is_sparse(X):
            data = (X.data * scaling.unit).astype(np.float32)
            parts = (X.indices.astype(np.int64), X.indptr.astype(np.int64))
            return cls(none.reshape(0, 0), data, *parts, targets)
        out = np.empty(X.shape, np.float32)
        np.multiply(X - scaling.origin, scaling.unit, out=out, casting="same_kind")
        return cls(out, none, np.zeros(0, np.int64), np.zeros(1, np.int64), targets)


class Steps(NamedTuple):
    """What all steps of a training have in common."""

    loss: int
    epsilon: float
    n_outputs: int
    penalties: Array  # (n_heads * n_outputs,) float32
    scales: Array  # (J, 1) float32, the factor of each cosine
    origin: Array  # (p,) float32, times the unit: what CSR rows have not been moved by
    batch: int
    n_steps: int  # until the step size reaches zero; 0 means unknown
    step_size: float
    learn_features: bool


class Buffers(NamedTuple):
    """Room for the values of one mini-batch and its gradient."""

    cosine: Array
    sine: Array
    back: Array
    outputs: Array
    slopes: Array
    gradient: Parameters

    @classmethod
    def make(cls, n_rows: int, parameters: Parameters) -> Buffers:
        """Return buffers for batches of so many rows."""
        features, outputs = (np.zeros((n_rows, k), np.float32) for k in parameters.heads.shape)
        copies = (features, features.copy(), features.copy(), outputs, outputs.copy())
        return cls(*copies, parameters.zeros())


@compiled()
def learn_rows(
    rows: ScaledRows, parameters: Parameters, adam: Adam, steps: Steps, buffers: Buffers
) -> tuple[int, float]:
    """Take one step for each mini-batch, changing parameters and `adam` in place.

    Returns the number of steps taken since the beginning, and the loss of the rows, each at the
    moment it was seen, summed over rows and meant over heads; it is not finite where training
    diverged, which ends it.
    """
    step, loss = adam.step, 0.0
    n = rows.targets.weights.size
    for start in range(0, n, steps.batch):
        stop = min(start + steps.batch, n)
        loss += batch_gradient(rows, start, stop, parameters, steps, buffers)
        if not np.isfinite(loss):
            break
        rate = _rate(steps, step) * (stop - start) / steps.batch  # the few left over move little
        step += 1
        _adam_step(parameters, buffers.gradient, adam, steps, rate, step)
    return step, loss


@compiled()
def batch_gradient(
    rows: ScaledRows,
    start: int,
    stop: int,
    parameters: Parameters,
    steps: Steps,
    buffers: Buffers,
) -> float:
    """Write the gradient of a mini-batch to ``buffers.gradient``; return its loss.

    The loss is summed over rows and meant over heads. By its own coefficients the gradient is that
    of each head's own mean loss; by frequencies and phases, which all heads share, that of the mean
    over heads.
    """
    m, heads = stop - start, parameters.heads.shape[1] // steps.n_outputs
    cosine, sine, back = buffers.cosine[:m], buffers.sine[:m], buffers.back[:m]
    outputs, slopes, gradient = buffers.outputs[:m], buffers.slopes[:m], buffers.gradient
    sparse = rows.indptr.size > 1
    phases = parameters.phases
    if sparse:
        _sparse_angles(rows, start, parameters.frequencies, cosine)
        phases = phases - np.dot(steps.origin, parameters.frequencies)
    else:
        np.dot(rows.dense[start:stop], parameters.frequencies, cosine)
    cosine_in_place_and_sine32(cosine, phases, sine)
    folded = steps.scales * parameters.heads
    np.dot(cosine, folded, outputs)
    outputs += parameters.intercepts
    loss = slopes_of_heads(
        outputs, rows.targets, start, steps.loss, steps.epsilon, steps.n_outputs, slopes
    )
    slopes /= np.float32(m)
    np.dot(cosine.T, slopes, gradient.heads)
    _finish_heads(gradient, slopes, parameters, steps)
    if steps.learn_features:
        backward = np.ascontiguousarray((np.float32(-TURN / heads) * folded).T)
        np.dot(slopes, backward, back)
        _times_and_sum(back, sine, gradient.phases)
        if sparse:
            _sparse_gradient(rows, start, back, gradient.frequencies)
            _subtract_outer(gradient.frequencies, steps.origin, gradient.phases)
        else:
            np.dot(rows.dense[start:stop].T, back, gradient.frequencies)
    return loss


@compiled()
def _finish_heads(
    gradient: Parameters, slopes: Array, parameters: Parameters, steps: Steps
) -> None:
    """Multiply by the scales, add the penalties, and sum the slopes for the intercepts."""
    for j in range(gradient.heads.shape[0]):
        for k in range(gradient.heads.shape[1]):
            penalty = steps.penalties[k] * parameters.heads[j, k]
            gradient.heads[j, k] = gradient.heads[j, k] * steps.scales[j, 0] + penalty
    gradient.intercepts[:] = 0
    for i in range(slopes.shape[0]):
        for k in range(slopes.shape[1]):
            gradient.intercepts[k] += slopes[i, k]


@compiled(fastmath={"contract"})
def _sparse_angles(rows: ScaledRows, start: int, frequencies: Array, out: Array) -> None:
    out[:] = 0
    for i in range(out.shape[0]):
        for at in range(rows.indptr[start + i], rows.indptr[start + i + 1]):
            value, column = rows.data[at], rows.indices[at]
            for j in range(out.shape[1]):
                out[i, j] += value * frequencies[column, j]


@compiled(fastmath={"contract"})
def _sparse_gradient(rows: ScaledRows, start: int, back: Array, out: Array) -> None:
    out[:] = 0
    for i in range(back.shape[0]):
        for at in range(rows.indptr[start + i], rows.indptr[start + i + 1]):
            value, column = rows.data[at], rows.indices[at]
            for j in range(back.shape[1]):
                out[column, j] += value * back[i, j]


@compiled()
def _times_and_sum(values: Array, factors: Array, sums: Array) -> None:
    sums[:] = 0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] *= factors[i, j]
            sums[j] += values[i, j]


@compiled()
def _subtract_outer(matrix: Array, column: Array, row: Array) -> None:
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] -= column[i] * row[j]


@compiled()
def _rate(steps: Steps, step: int) -> float:
    """Return the factor on the step size before a step."""
    if steps.n_steps:
        return steps.step_size * 0.5 * (1 + np.cos(np.pi * min(step / steps.n_steps, 1.0)))
    return float(steps.step_size * OPEN_RATE / np.sqrt(1 + step / OPEN_STEPS))


@compiled()
def _adam_step(
    value: Parameters, slope: Parameters, adam: Adam, steps: Steps, rate: float, step: int
) -> None:
    first, second = adam.first, adam.second
    size = np.float32(rate / (1 - 0.9**step))
    correction = np.float32(1 / (1 - 0.99**step))
    if steps.learn_features:
        moving = np.float32(FREQUENCY_STEP) * size
        turning = moving / np.float32(TURN)
        parts = (value.frequencies, slope.frequencies, first.frequencies, second.frequencies)
        _adam(*parts, moving, correction)
        parts1 = (value.phases, slope.phases, first.phases, second.phases)
        _adam(*parts1, turning, correction)
    size *= np.float32(HEAD_STEP)
    parts2 = (value.heads, slope.heads, first.heads, second.heads)
    _adam(*parts2, size, correction)
    parts3 = (value.intercepts, slope.intercepts, first.intercepts, second.intercepts)
    _adam(*parts3, size, correction)


@compiled(fastmath={"contract"})
def _adam(
    values: Array, slopes: Array, firsts: Array, seconds: Array, rate: Any, correction: Any
) -> None:
    """Move values in place, with decays of 0.9 and 0.99."""
    value, slope, first, second = values.ravel(), slopes.ravel(), firsts.ravel(), seconds.ravel()
    keep_first, keep_second = np.float32(0.9), np.float32(0.99)
    tiny = np.float32(1e-8)
    one = np.float32(1)
    for i in range(value.size):
        g = slope[i]
        m = keep_first * first[i] + (one - keep_first) * g
        v = keep_second * second[i] + (one - keep_second) * g * g
        first[i] = m
        second[i] = v
        value[i] -= rate * m / (np.sqrt(v * correction) + tiny)


FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples of the frequencies of the median distance; for "rbf" gamma has their square."""
ROUNDS = ((10_000, 3, 10), (40_000, 2, 3), (120_000, 1, 8))
"""Of each round: the rows that a trial learns from, the widths that are left after it, and the part
of the whole training that a trial may cost at most."""


class Trial(NamedTuple):
    """One width and what became of it."""

    gamma: float
    visits: int
    judgement: Judgement
    training: OptimizerConfig
    state: OptimizerState

    @property
    def loss(self) -> float:
        """The loss of the best head on rows held out."""
        return self.judgement.value


def median_gamma(kernel: Kernel, X: Matrix, rng: np.random.Generator) -> float:
    """Return the gamma that belongs to the median distance of sampled rows, or 1 if all are one."""
    n = X.shape[0]
    first, second = rng.integers(0, n, 4000), rng.integers(0, n, 4000)
    kind: Sum = "absolutes" if kernel.distance == "absolutes" else "squares"
    with np.errstate(over="ignore"):
        distances = rowwise(kind, X[first].astype(np.float64), X[second].astype(np.float64))
    distances = distances[distances > 0]
    if not len(distances) and not vary(X):
        return 1.0
    middle = float(np.median(distances)) if len(distances) else 0.0
    if middle < LEAST_SQUARE:
        return check_gamma("tune", np.inf)
    found = 1 / middle if kind == "absolutes" else kernel.gamma_of_spread(middle)
    return check_gamma("tune", float(found))


def scaled_gamma(kernel: Kernel, gamma: float, factor: float) -> float:
    """Return the gamma whose frequencies are those of `gamma` times a factor."""
    if kernel.distance == "absolutes":
        return gamma * factor
    return gamma * float(kernel.gamma_of_spread(factor**-2) / kernel.gamma_of_spread(1.0))


def choose_width(
    gammas: Sequence[float],
    try_width: Callable[[float, int], Trial],
    all_visits: int,
) -> list[Trial]:
    """Return all trials, the last one with the chosen width.

    Parameters
    ----------
    gammas : sequence of float
    try_width : callable
        ``try_width(gamma, visits)`` trains on that many rows and judges on rows held out.
    all_visits : int
        Rows that the training itself will learn from, counted once per epoch.
    """
    trials: list[Trial] = []
    left = list(gammas)
    for visits, keep in _rounds(all_visits):
        found = [try_width(gamma, visits) for gamma in left]
        found.sort(key=lambda trial: -trial.loss)
        trials += found
        left = [trial.gamma for trial in found[-keep:]]
    return trials


def _rounds(all_visits: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that a trial of each round learns from, and the widths that are left then."""
    for number, (visits, keep, part) in enumerate(ROUNDS):
        if number > 1 and visits > all_visits / part:
            return
        yield min(visits, -(-all_visits // part)), keep


def trial_visits(all_visits: int) -> int:
    """Return the rows that all trials together learn from."""
    total, tried = 0, len(FACTORS)
    for visits, keep in _rounds(all_visits):
        total, tried = total + tried * visits, keep
    return total


def held_rows(n_rows: int, fraction: float) -> int:
    """Return how many rows judge; none where too few would."""
    wanted = round(fraction * n_rows)
    return 0 if wanted < SMALLEST_HELD else min(wanted, LARGEST_HELD)


SMALLEST_HELD, LARGEST_HELD = 10, 10_000
TRIAL_HELD = 4000
"""Held-out rows that judge a trial."""


def few(rows: TrainingRows, n: int) -> TrainingRows:
    """Return the first n of some rows."""
    return rows.take(slice(0, n))

"""Gradient refinement: kept frequencies, phases and scales move to fit the target better.

Selection chooses among drawn candidates; refinement then lets the kept ones move, on the same
gathered rows and the same objective, by Adam on mini-batches of rows. The state that is best on
held-out rows is returned, so refinement never returns worse than it was given.

All products are cut into fixed tiles of one BLAS thread each: the result does not depend on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray, Matrix, is_sparse
from rfcdask.kernels.hot_loop import cosine_and_sine
from rfcdask.kernels.runtime import map_tiles, one_blas_thread
from rfcdask.selection.candidates import RowTarget, slices, sum_of_squares, symmetric
from rfcdask.selection.objective import Track, untracked

BATCH = 1000  # rows per mini-batch, all pairs of which make one gradient
STEP = 0.03  # Adam's step size, relative to the typical size of each kind of parameter
DECAYS = (0.9, 0.99)  # Adam's decay of the mean gradient and of the mean squared one
CHECK_EVERY = 10  # steps from one look at the held-out error to the next
_TILE = 128
_FREQUENCY_TILE = 64
_PAIR_TILE = 200


@dataclass(frozen=True)
class CentredCSR:
    """CSR rows moved by an origin that is never taken from their entries: they stay sparse."""

    rows: Matrix
    origin: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows.shape[0], self.rows.shape[1]

    def __getitem__(self, rows: IntArray) -> CentredCSR:
        return replace(self, rows=self.rows[rows])


@dataclass(frozen=True)
class FeatureParameters:
    """Frequencies and phases in turns and the scale of each feature, all float32.

    With `paired`, each frequency stands for its cosine and its sine.
    """

    turns: Array
    phases: Array
    scales: Array
    paired: bool = False

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return the three arrays that move."""
        return self.turns, self.phases, self.scales

    def evaluate(self, X: Matrix | CentredCSR) -> tuple[Array, Array]:
        """Return the cosines and the sines of the angles, ``(rows, n)`` each."""
        cosine = np.empty((X.shape[0], len(self.phases)), np.float32)
        sine = np.empty_like(cosine)
        if isinstance(X, CentredCSR):
            values, phases = X.rows, self.phases - X.origin @ self.turns
        else:
            values, phases = X, self.phases

        def fill(rows: slice) -> None:
            angles = np.ascontiguousarray(values[rows] @ self.turns, np.float32)
            cosine_and_sine(angles, phases, cosine[rows], sine[rows])

        map_tiles(fill, slices(X.shape[0], _TILE))
        return cosine, sine


@dataclass(frozen=True)
class RowsWithTarget:
    """Rows, moved to the origin that refinement works at, with their target."""

    X: Matrix | CentredCSR
    target: RowTarget

    def whole_target(self) -> Array:
        """Return the target of all pairs, zero where a row meets itself."""
        everything = slice(0, self.X.shape[0])
        return _without_diagonal(self.target.block(everything, everything))


@dataclass(frozen=True)
class RefineResult:
    """What refinement found; errors are relative, over held-out pairs."""

    features: FeatureParameters  # the best state seen
    error_before: float  # of the given features
    error_after: float  # of those returned
    steps: IntArray  # when the error was looked at
    errors: Array  # and what it was


def heldout_error(features: FeatureParameters, X: Matrix | CentredCSR, target: Array) -> float:
    """Return ||Z Z^T - T|| / ||T|| over pairs of different rows; `target` has a zero diagonal."""
    Z = _outputs(features, *features.evaluate(X))

    def squares(rows: slice) -> float:
        return sum_of_squares(_residual(Z, rows, target[rows]))

    total = sum(map_tiles(squares, slices(len(Z), _TILE)))
    return float(np.sqrt(total / sum_of_squares(target)))


def refine(
    features: FeatureParameters,
    training: RowsWithTarget,
    heldout: RowsWithTarget,
    *,
    n_steps: int,
    frequency_unit: float,
    rng: np.random.Generator,
    track: Track = untracked,
) -> RefineResult:
    """Move features by `n_steps` of Adam and return the best state on the held-out rows.

    Parameters
    ----------
    features : FeatureParameters
    training, heldout : RowsWithTarget
        The gathered rows to move on, and those that judge.
    n_steps : int
    frequency_unit : float
        The typical size of a frequency, in radians: steps are relative to it.
    rng : numpy.random.Generator
        Draws the mini-batches.
    track : callable, optional
        Reports the steps.
    """
    target = heldout.whole_target()
    n_rows = training.X.shape[0]
    adam = _Adam(features, frequency_unit)
    with one_blas_thread(), track("refining features", n_steps, "steps") as bar:
        best = heldout_error(features, heldout.X, target)
        before, kept, steps, errors = best, features, [0], [best]
        for step in range(1, n_steps + 1):
            # In order, since neighbours in memory are gathered faster.
            batch = np.sort(rng.choice(n_rows, min(BATCH, n_rows), replace=False))
            gradient = _gradient(features, training, batch)
            features = adam.moved(features, gradient, step, n_steps)
            if step % CHECK_EVERY == 0 or step == n_steps:
                error = heldout_error(features, heldout.X, target)
                steps.append(step)
                errors.append(error)
                if error < best:
                    best, kept = error, features
            bar.advance()
    return RefineResult(kept, before, best, np.array(steps), np.array(errors))


def _gradient(
    features: FeatureParameters, training: RowsWithTarget, batch: IntArray
) -> tuple[Array, Array, Array]:
    """Return the gradient of mean (Z Z^T - T)^2 over pairs, by turns, phases and scales.

    With E the residual, symmetric and zero on the diagonal, the gradient by Z is ``4 E Z / n^2``.
    A feature is ``z = s cos(v)`` with ``v = 2 pi (x . turns + phase)``, in a pair also
    ``s sin(v)``. So the gradient by its scale is the sum over rows of dz cos(v), and by its angles
    it is ``-dz s sin(v)``. The common factors are applied at the end, to the small arrays.
    """
    X, n = training.X[batch], len(batch)
    cosine, sine = features.evaluate(X)
    Z = _outputs(features, cosine, sine)

    def residual(rows: slice, columns: slice) -> Array:
        E = Z[rows] @ Z[columns].T
        E -= training.target.block(batch[rows], batch[columns])
        return np.asarray(E)

    E = symmetric(residual, n, _PAIR_TILE, np.dtype(np.float32))
    np.fill_diagonal(E, 0)
    angles = np.empty_like(cosine)
    scales = np.empty_like(cosine)

    def fill(rows: slice) -> None:
        dZ = E[rows] @ Z
        by_cosine, by_sine = np.split(dZ, 2, axis=1) if features.paired else (dZ, None)
        scales[rows] = by_cosine * cosine[rows]
        angles[rows] = by_cosine * -sine[rows]
        if by_sine is not None:
            scales[rows] += by_sine * sine[rows]
            angles[rows] += by_sine * cosine[rows]
        angles[rows] *= features.scales

    map_tiles(fill, slices(n, _TILE))
    factor = np.float32(4 / n**2)
    radians = np.float32(2 * np.pi)
    summed = angles.sum(axis=0, dtype=np.float64).astype(np.float32)
    if isinstance(X, CentredCSR):
        # (X - origin)^T A without the dense difference.
        by_turns = _transposed_product(X.rows, angles) - np.outer(X.origin, summed)
    else:
        by_turns = _transposed_product(X, angles)
    by_phases = summed * (factor * radians)
    if features.paired:  # a pair's products do not depend on its phase: all is rounding
        by_phases[:] = 0
    return (
        by_turns * (factor * radians),
        by_phases,
        scales.sum(axis=0, dtype=np.float64).astype(np.float32) * factor,
    )


def _outputs(features: FeatureParameters, cosine: Array, sine: Array) -> Array:
    if features.paired:
        return np.hstack([cosine * features.scales, sine * features.scales])
    return np.asarray(cosine * features.scales)


def _residual(Z: Array, rows: slice, target: Array) -> Array:
    E = Z[rows] @ Z.T
    E -= target
    E[np.arange(len(E)), np.arange(rows.start, rows.stop)] = 0
    return np.asarray(E)


def _transposed_product(X: Matrix, A: Array) -> Array:
    out = np.empty((X.shape[1], A.shape[1]), np.float32)

    def fill(columns: slice) -> None:
        out[:, columns] = X.T @ np.ascontiguousarray(A[:, columns])

    map_tiles(fill, slices(A.shape[1], _FREQUENCY_TILE))
    return out


def _without_diagonal(block: Array) -> Array:
    np.fill_diagonal(block, 0)
    return block


class _Adam:
    """Adam with cosine decay, each kind of parameter in its own unit."""

    def __init__(self, features: FeatureParameters, frequency_unit: float) -> None:
        turn = 2 * np.pi
        units = (frequency_unit / turn, 1 / turn, float(np.mean(np.abs(features.scales))))
        self.rates = [STEP * unit for unit in units]
        self.first = [np.zeros_like(value) for value in features.arrays()]
        self.second = [np.zeros_like(value) for value in features.arrays()]

    def moved(
        self,
        features: FeatureParameters,
        gradient: tuple[Array, Array, Array],
        step: int,
        n_steps: int,
    ) -> FeatureParameters:
        """Return the features after one step; the given ones stay as they are."""
        decay = 0.5 * (1 + np.cos(np.pi * (step - 1) / n_steps))
        a, b = DECAYS
        moved: list[Array] = []
        for k, (value, slope) in enumerate(zip(features.arrays(), gradient, strict=True)):
            self.first[k] += (1 - a) * (slope - self.first[k])
            self.second[k] += (1 - b) * (slope * slope - self.second[k])
            size = np.sqrt(self.second[k] / (1 - b**step))
            # Gradients shrink with the number of rows: a fixed epsilon would swallow them.
            size += 1e-8 * float(size.max(initial=0.0)) + 1e-30
            shift = self.rates[k] * decay / (1 - a**step) * self.first[k] / size
            moved.append((value - shift).astype(np.float32))
        return replace(features, turns=moved[0], phases=moved[1], scales=moved[2])


def centred(
    X: Matrix, unit: float = 1.0
) -> tuple[Matrix | CentredCSR, Array, Callable[[Matrix], Matrix | CentredCSR]]:
    """Return float32 rows moved to their mean times `unit`, the mean, and the same for other rows.

    Angles far from the origin would lose their digits in float32, and a step of a frequency would
    turn all rows at once, against what its phase has found.
    """
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if not is_sparse(X):

        def move(other: Matrix) -> Matrix:
            return np.asarray((other - mean) * unit, np.float32)

        return move(X), mean, move
    origin = (mean * unit).astype(np.float32)

    def hold(other: Matrix) -> CentredCSR:
        return CentredCSR((other.astype(np.float64) * unit).astype(np.float32), origin)

    return hold(X), origin.astype(np.float64) / unit, hold

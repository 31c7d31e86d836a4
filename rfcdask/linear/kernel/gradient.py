"""The gradient of one mini-batch by frequencies, phases and linear heads, in float32.

The model is ``f(x) = A^T z(x) + c`` with ``z_j(x) = s_j cos(w_j . x + b_j)``. With F the slopes of
the loss by the outputs f, over the number of rows,

    dA = Z^T F,   dc = sum F,   D = (F A^T) * (-s sin(angles)),   dW = X^T D,   db = sum D.

Angles are in turns, as in the hot loop, and rows are centred and multiplied by the typical size
of a frequency (`InputScaling`), so that neither the units of X nor its origin change the training.
The scales s_j are folded into the small head matrices. A batch is cut into fixed tiles of rows,
each computed by one BLAS thread, and their gradients are added in order: the result does not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np

from rfcdask.kernels.arrays import Array, Matrix, is_sparse
from rfcdask.kernels.hot_loop import cosine_and_sine
from rfcdask.kernels.threads import map_tiles

TILE_ROWS = 128
"""Rows of a batch that one thread computes."""
_RADIANS = np.float32(2 * np.pi)

Slopes = Callable[[Array, Array, Array, Array], float]
"""``slopes(outputs, targets, weights, out) -> summed loss``, filling `out`."""


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


@dataclass
class _Tile:
    """Buffers of one tile of rows and the gradient found on it."""

    X: Array  # (rows, p) or empty for CSR
    cosine: Array
    sine: Array
    outputs: Array
    slopes: Array
    back: Array
    gradient: Parameters
    loss: float = 0.0

    @classmethod
    def make(cls, n_rows: int, n_columns: int, parameters: Parameters) -> _Tile:
        n_features, n_outputs = parameters.heads.shape

        def buffer(width: int) -> Array:
            return np.zeros((n_rows, width), np.float32)

        return cls(
            buffer(n_columns),
            buffer(n_features),
            buffer(n_features),
            buffer(n_outputs),
            buffer(n_outputs),
            buffer(n_features),
            parameters.zeros(),
        )


class BatchGradient:
    """Computes outputs and gradients of mini-batches in buffers made once.

    Parameters
    ----------
    scales : array of shape (J,)
        The factor of each cosine.
    scaling : InputScaling
    slopes : callable
        See `Slopes`; it is given the outputs of all heads, ``(rows * n_heads, n_outputs)``.
    n_heads : int
    batch : int
        Most rows of a batch.
    learn_features : bool
        Whether frequencies and phases have a gradient.
    n_threads : int or None
    """

    def __init__(
        self,
        scales: Array,
        scaling: InputScaling,
        slopes: Slopes,
        *,
        n_heads: int = 1,
        batch: int = 500,
        learn_features: bool = True,
        n_threads: int | None = None,
    ) -> None:
        self.scales = scales.astype(np.float32)[:, None]
        self.scaling, self.slopes, self.n_heads = scaling, slopes, n_heads
        self.learn_features, self.n_threads = learn_features, n_threads
        self.height = min(batch, TILE_ROWS)
        self._tiles: list[_Tile] = []

    def __call__(
        self, parameters: Parameters, X: Matrix, targets: Array, weights: Array
    ) -> tuple[Parameters, float]:
        """Return the gradient and the mean loss over rows and heads.

        By its own coefficients the gradient is that of each head's own mean loss; by frequencies
        and phases, which all heads share, that of the mean over heads.
        `X` are raw rows; `targets` are codes of classes or numbers ``(rows, n_outputs)``. The
        gradient lies in a buffer that the next call overwrites.
        """
        n = X.shape[0]
        slices = [slice(i, min(i + self.height, n)) for i in range(0, n, self.height)]
        while len(self._tiles) < len(slices):
            columns = 0 if is_sparse(X) else X.shape[1]
            self._tiles.append(_Tile.make(self.height, columns, parameters))
        folded = self.scales * parameters.heads
        shift = None
        if is_sparse(X):
            origin = (self.scaling.origin * self.scaling.unit).astype(np.float32)
            shift = parameters.phases - origin @ parameters.frequencies
        backward = np.ascontiguousarray((-_RADIANS / (n * self.n_heads)) * folded.T)
        forward = _Forward(parameters, folded, backward, shift)

        def work(number: int) -> None:
            rows = slices[number]
            self._tile(self._tiles[number], forward, X[rows], targets[rows], weights[rows], n)

        map_tiles(work, range(len(slices)), self.n_threads)
        used = self._tiles[: len(slices)]
        total = used[0].gradient
        for tile in used[1:]:
            for into, part in zip(total, tile.gradient, strict=True):
                if self.learn_features or into is total.heads or into is total.intercepts:
                    into += part
        return total, sum(tile.loss for tile in used) / (n * self.n_heads)

    def _tile(
        self,
        tile: _Tile,
        forward: _Forward,
        X: Matrix,
        targets: Array,
        weights: Array,
        n: int,
    ) -> None:
        m, k = X.shape[0], forward.folded.shape[1] // self.n_heads
        cosine, sine = tile.cosine[:m], tile.sine[:m]
        rows = self._angles(tile, forward, X, cosine)
        phases = forward.parameters.phases if forward.shift is None else forward.shift
        cosine_and_sine(cosine, phases, cosine, sine)
        outputs, slopes = tile.outputs[:m], tile.slopes[:m]
        np.dot(cosine, forward.folded, out=outputs)
        outputs += forward.parameters.intercepts
        heads = self.n_heads
        tile.loss = self.slopes(
            outputs.reshape(m * heads, k),
            np.repeat(targets, heads, axis=0),
            np.repeat(weights, heads),
            slopes.reshape(m * heads, k),
        )
        gradient = tile.gradient
        np.dot(cosine.T, slopes, out=gradient.heads)
        np.multiply(gradient.heads, self.scales / np.float32(n), out=gradient.heads)
        np.divide(slopes.sum(axis=0), np.float32(n), out=gradient.intercepts)
        if not self.learn_features:
            return
        back = tile.back[:m]
        np.dot(slopes, forward.backward, out=back)
        _times_and_sum(back, sine, gradient.phases)
        if is_sparse(X):
            unit = np.float32(self.scaling.unit)
            gradient.frequencies[...] = unit * (X.T @ back)
            origin = (self.scaling.origin * self.scaling.unit).astype(np.float32)
            _subtract_outer(gradient.frequencies, origin, gradient.phases)
        else:
            np.dot(rows.T, back, out=gradient.frequencies)

    def _angles(self, tile: _Tile, forward: _Forward, X: Matrix, out: Array) -> Array:
        """Write the angles without phases to `out`; return the scaled rows, if dense."""
        if is_sparse(X):
            product = X @ forward.parameters.frequencies
            np.multiply(product, np.float32(self.scaling.unit), out=out)
            return out
        rows = tile.X[: X.shape[0]]
        _scale_rows(X, self.scaling.origin, self.scaling.unit, rows)
        np.dot(rows, forward.parameters.frequencies, out=out)
        return rows


class _Forward(NamedTuple):
    """What all tiles of a batch share."""

    parameters: Parameters
    folded: Array  # scales times heads
    backward: Array  # (outputs, J): from slopes to slopes by angles, but for the sine
    shift: Array | None  # phases that stand for the origin too, for rows that must stay sparse


@numba.njit(cache=True, nogil=True)
def _scale_rows(X: Array, origin: Array, unit: float, out: Array) -> None:
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = np.float32((X[i, j] - origin[j]) * unit)


@numba.njit(cache=True, nogil=True)
def _times_and_sum(values: Array, factors: Array, sums: Array) -> None:
    sums[:] = 0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] *= factors[i, j]
            sums[j] += values[i, j]


@numba.njit(cache=True, nogil=True)
def _subtract_outer(matrix: Array, column: Array, row: Array) -> None:
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] -= column[i] * row[j]


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


DECAYS = (0.9, 0.99)


def adam_step(
    parameters: Parameters,
    gradient: Parameters,
    adam: Adam,
    rates: tuple[float, float, float, float],
) -> Adam:
    """Move `parameters` in place by one step; a rate of 0 leaves its array as it is."""
    a, b = DECAYS
    step = adam.step + 1
    for value, slope, first, second, rate in zip(
        parameters, gradient, adam.first, adam.second, rates, strict=True
    ):
        if rate > 0:
            _adam(
                value.reshape(-1),
                slope.reshape(-1),
                first.reshape(-1),
                second.reshape(-1),
                np.float32(rate / (1 - a**step)),
                np.float32(1 / (1 - b**step)),
            )
    return adam._replace(step=step)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _adam(
    value: Array, slope: Array, first: Array, second: Array, rate: Any, correction: Any
) -> None:
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

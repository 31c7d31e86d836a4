"""Columns of the Gram matrix on demand, fetched in batches of the candidates likely to be next.

A column of G is a product over all candidates. Alone it is limited by memory, since every value of
every candidate is read for one multiplication; 32 columns at once take little longer than one. So
a cache fetches columns in batches, and the art is to guess which 31 others will be asked for.

The atoms with the highest scores now are a poor guess: once the best is picked, those like it lose
their score. A better guess is a *forecast*: G among the few hundred atoms with the highest scores
is cheap, and on that small matrix the solver itself runs ahead, as if there were no other atoms.
Its next picks are the batch. Measured, that halves the number of columns fetched.

A wrong guess costs time and never changes a pick. The forecast runs on a copy of the solver and
on entries of G that may be approximate; all it returns is a list of indices. Every real pick is
made from scores over all candidates and from the whole exact column. The last bits of a column do
hang on the batch that it comes with, since BLAS sums up in another order at another place of a
product. So a solver fetches its columns itself, also where another one has had them: what is
selected must not hang on what was selected before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray
from rfcdask.kernels.runtime import release_memory
from rfcdask.selection.candidates import SMALL_TILE, slices
from rfcdask.selection.objective import Objective

BATCH = 32
"""Columns per fetch: wide enough for a fast matrix product, narrow enough to be mostly used."""
MIN_FORECAST_WORK = 100_000_000
"""Multiplications per batch below which fetching it is cheaper than a forecast."""
MAX_FORECAST_STEPS = 3
"""Steps of a forecast per column of the batch: many pick again what is known, so it may take long
to name 32 new atoms, and then fewer are fetched."""

FRESH_BYTES = 2**24
"""Values of atoms that a forecast has not seen before, taken at a time: those of hundreds of atoms
on thousands of pairs would stand beside all that is held anyway."""

Forecast = Callable[[IntArray, Array], Iterator[int]]
"""Given some atoms and G among them, yields the solver's next picks as if there were no others."""


class GramColumns(Protocol):
    """Where a solver gets columns of G."""

    n_atoms: int
    dtype: np.dtype
    squared_norms: Array

    def column(self, atom: int, scores: Array, forecast: Forecast | None = None) -> Array:
        """Return one column."""

    def product(self, weights: Array) -> Array:
        """Return G w, in float64."""


class DenseColumns:
    """Columns of a matrix that is there as a whole, as in a forecast."""

    def __init__(self, G: Array) -> None:
        self.G, self.n_atoms, self.dtype = G, len(G), G.dtype
        self.squared_norms = np.diag(G).astype(np.float64)

    def column(self, atom: int, scores: Array, forecast: Forecast | None = None) -> Array:
        """Return one column, which is a row too."""
        return np.asarray(self.G[atom])

    def product(self, weights: Array) -> Array:
        """Return G w."""
        chosen = np.flatnonzero(weights)
        return np.asarray(weights[chosen] @ self.G[chosen])


class LikelyAtoms:
    """The atoms that may be picked next and G, approximately, among them.

    From one forecast to the next most of these atoms stay: only the rows and columns of new ones
    are computed, in the places of those that went.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.atoms = np.empty(0, np.int64)
        self.values = self.G = np.empty((0, 0), objective.dtype)

    def change_to(self, atoms: IntArray) -> None:
        """Hold these atoms from now on, in whatever order."""
        if len(atoms) != len(self.atoms):
            self.atoms, self.values = atoms.copy(), self.objective.values(atoms)
            self.G = self.objective.approximate_gram(self.values, self.values)
            return
        places = np.flatnonzero(~np.isin(self.atoms, atoms))
        fresh = self.atoms[places] = np.setdiff1d(atoms, self.atoms)
        parts = list(slices(len(fresh), max(SMALL_TILE, FRESH_BYTES // self.values[0].nbytes)))
        for part in parts:
            self.values[places[part]] = self.objective.values(fresh[part])
        for at in (places[part] for part in parts):
            products = self.objective.approximate_gram(self.values[at], self.values)
            self.G[at], self.G[:, at] = products, products.T


class ColumnCache:
    """Keeps the columns fetched so far within a budget; columns in use are never dropped.

    Parameters
    ----------
    objective : Objective
    budget : int
        Bytes that columns fetched ahead, and not used so far, may take.
    """

    def __init__(
        self, objective: Objective, budget: int = 2**30, squared_norms: Array | None = None
    ) -> None:
        self.objective, self.budget = objective, budget
        self.n_atoms, self.dtype = objective.n_atoms, objective.dtype
        self.squared_norms = objective.squared_norms() if squared_norms is None else squared_norms
        self._used: dict[int, Array] = {}
        self._ahead: dict[int, Array] = {}
        self._likely = LikelyAtoms(objective)
        self._gram_of_used: Array = np.empty((0, 0), self.dtype)  # as of the last forecast
        self._room = max(BATCH, budget // max(1, 8 * self.n_atoms))
        self.spared = 0.0  # seconds that it would have taken to make the values anew

    def emptied(self) -> ColumnCache:
        """Return one of the same candidates with no columns, for another solver."""
        return ColumnCache(self.objective, self.budget, self.squared_norms)

    def column(self, atom: int, scores: Array, forecast: Forecast | None = None) -> Array:
        """Return one column; when it is missing, fetch those likely to be asked for next with it.

        Parameters
        ----------
        atom : int
        scores : array of shape (n_atoms,)
            How good each atom is as the next pick; minus infinity says never.
        forecast : callable, optional
            Runs the solver ahead; without it the atoms with the highest scores are fetched.
        """
        if atom not in self._used:
            if atom not in self._ahead:
                self._fetch(self._batch_with(atom, scores, forecast))
                self._drop_oldest_but(atom)
            self._used[atom] = self._ahead.pop(atom)
        return self._used[atom]

    def product(self, weights: Array) -> Array:
        """Return G w anew from the columns of the atoms that carry weight, in float64."""
        total = np.zeros(self.n_atoms)
        for atom in np.flatnonzero(weights):
            total += weights[atom] * self._used[int(atom)]
        return total

    def _batch_with(self, atom: int, scores: Array, forecast: Forecast | None) -> IntArray:
        """Return the atom and others whose columns are likely to be needed next, and missing."""
        wanted = scores.copy()
        wanted[list(self._used)] = -np.inf
        wanted[atom] = np.inf
        if forecast is None or BATCH * self.n_atoms * self.objective.n_terms < MIN_FORECAST_WORK:
            wanted[list(self._ahead)] = -np.inf
            return _highest(wanted, BATCH)
        self._likely.change_to(_highest(wanted, self._forecast_size()))
        missing = {atom: None}
        for pick in islice(forecast(*self._gram_for_forecast()), MAX_FORECAST_STEPS * BATCH):
            if pick not in self._used and pick not in self._ahead:
                missing[pick] = None
            if len(missing) == BATCH:
                break
        return np.array(list(missing))

    def _forecast_size(self) -> int:
        """Return how many likely atoms a forecast looks at.

        G among s of n atoms takes s^2 products and a batch of b columns b n of them: with
        ``s = sqrt(b n)`` a forecast from scratch costs no more than the batch, and about half of
        it where `approximate_gram` needs half the products.
        """
        return min(self.n_atoms, math.isqrt(BATCH * self.n_atoms))

    def _gram_for_forecast(self) -> tuple[IntArray, Array]:
        """Return the atoms in use and the likely ones, and G among all of them.

        What lies in a column in use is exact and only copied: the solver's own state is on these
        atoms. Between two atoms that are merely likely, G is approximate. What was copied for the
        last forecast, `_gram_of_used`, is kept, since strided reads of hundreds of long columns
        are what this step spends its time on.
        """
        used = np.fromiter(self._used, np.int64, len(self._used))
        n, known = len(used), len(self._gram_of_used)
        atoms = np.concatenate([used, self._likely.atoms])
        G = np.empty((len(atoms), len(atoms)), self.dtype)
        G[:known, :known] = self._gram_of_used
        for k, column in enumerate(self._used.values()):
            first = n if k < known else 0
            np.take(column, atoms[first:], out=G[k, first:], mode="clip")
        G[:known, known:n] = G[known:n, :known].T
        G[n:, :n] = G[:n, n:].T
        G[n:, n:] = self._likely.G
        self._gram_of_used = G[:n, :n].copy()
        return atoms, G

    def _fetch(self, atoms: IntArray) -> None:
        for atom, column in zip(atoms, self.objective.columns(atoms).T, strict=True):
            # A view would keep the memory of the whole batch as long as any of its columns.
            self._ahead[int(atom)] = column.copy()

    def _drop_oldest_but(self, atom: int) -> None:
        """Drop the oldest columns fetched ahead and never used, all but the one asked for."""
        for oldest in list(self._ahead):
            if len(self._ahead) <= self._room:
                break
            if oldest != atom:
                del self._ahead[oldest]


class SharedCandidates:
    """The candidates' values of the last selection, for the next one on the same rows.

    GIGA and Frank-Wolfe, or selections with labels and without, multiply the same ones.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Let go of the values."""
        self._about: tuple[Any, ...] = ()
        self._columns: ColumnCache | None = None
        self._making = 0.0  # seconds
        release_memory()  # hundreds of MiB, of which the next may take pieces of another size

    def of(self, about: tuple[Any, ...], make: Callable[[], ColumnCache]) -> ColumnCache:
        """Return a cache without columns on what `about` says, made where that is something else.

        Parameters
        ----------
        about : tuple
            Arrays, and values that compare by ``==``.
        make : callable
        """
        if self._columns is not None and self._is_about(about):
            again = self._columns.emptied()
            again.spared = self._making
            return again
        self.clear()  # before others are made, with no name left for them here: both may be large
        start = time.perf_counter()
        columns = make()
        self._making = time.perf_counter() - start
        self._about, self._columns = about, columns.emptied()
        return columns

    def _is_about(self, about: tuple[Any, ...]) -> bool:
        return len(about) == len(self._about) and all(map(_are_equal, about, self._about))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _highest(scores: Array, size: int) -> IntArray:
    """Return the indices of the highest scores above minus infinity, in ascending order."""
    size = min(size, len(scores))
    places = np.sort(np.argpartition(-scores, size - 1)[:size])
    return np.asarray(places[scores[places] > -np.inf])

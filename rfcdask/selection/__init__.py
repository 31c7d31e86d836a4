"""Choosing and weighting a few of many candidate features: numpy only, on rows in memory.

The chapters, in the order in which they build on each other:

    candidates  values of candidate features on the gathered rows, and the target they shall
                reproduce: the kernel, their own sum, labels; products and sums in fixed tiles
    objective   the least-squares problem in Gram form, from all pairs of the rows or from some
    columns     columns of the Gram matrix on demand, and the forecast which come next
    refit       non-negative least squares over a growing set
    solvers     GIGA, Frank-Wolfe, matching pursuit: one step of each
    refine      gradient steps on frequencies, phases and scales
    compress    all of it, from rows to features

Here a greedy solver is followed to J distinct features, with the weights at every size on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray
from rfcdask.kernels.runtime import one_blas_thread
from rfcdask.selection.columns import ColumnCache
from rfcdask.selection.objective import DenseGram, Objective, Track, untracked
from rfcdask.selection.solvers import FrankWolfe, Giga, Greedy, GrowingNNLS, Pursuit

__all__ = ["Path", "frank_wolfe", "giga", "pursuit"]

MAX_STATES = 2000  # at how many sizes the weights are kept; a longer path keeps evenly spaced ones
FLOOR_GAIN, FLOOR_GROWTH, FLOOR_PATIENCE = 0.01, 1.05, 50
"""The floor is reached when FLOOR_PATIENCE steps, and one more for every second feature held, have
neither lowered the error by the share FLOOR_GAIN nor let the set of features grow by the factor
FLOOR_GROWTH."""

Gram = Array | Objective
"""Inner products of the atoms as a matrix, or an object that gives columns of them on demand."""


@dataclass(frozen=True)
class SelectionState:
    """The weights at one size."""

    atoms: IntArray  # the chosen candidates, in the order they were picked
    weights: Array  # theirs, all positive
    error: float  # relative, on the sampled pairs


@dataclass(frozen=True)
class Path:
    """What a solver returns: the weights of the largest size, and all sizes before.

    Attributes
    ----------
    n_atoms : int
        The number of candidates J+.
    states : list of SelectionState
        One for each size that was kept, increasing.
    iterations : int
        Steps taken; some pick a feature again.
    complete : bool
        False when the error reached its numeric floor before the size asked for.
    """

    n_atoms: int
    states: list[SelectionState]
    iterations: int
    complete: bool

    @property
    def weights(self) -> Array:
        """Weights of all candidates at the largest size, ``(n_atoms,)``, mostly zero."""
        out = np.zeros(self.n_atoms)
        if self.states:
            out[self.states[-1].atoms] = self.states[-1].weights
        return out

    @property
    def sizes(self) -> IntArray:
        """The sizes that were kept."""
        return np.array([len(state.atoms) for state in self.states], np.int64)

    @property
    def errors(self) -> Array:
        """Relative error ||t - x|| / ||t|| on the sampled pairs at each of `sizes`."""
        return np.array([state.error for state in self.states])

    def __repr__(self) -> str:
        if not self.states:
            return f"Path(0 of {self.n_atoms} candidates)"
        last = self.states[-1]
        return f"Path({len(last.atoms)} of {self.n_atoms} candidates, error {last.error:.4g})"


def run_solver(
    solver: Greedy,
    n_components: int,
    *,
    refit: bool,
    max_iterations: int | None = None,
    track: Track = untracked,
    reached: dict[int, SelectionState] | None = None,
) -> Path:
    """Step a solver until it holds `n_components` distinct atoms.

    With `refit`, the weights at each size are the best non-negative ones for the atoms picked so
    far, and an atom whose weight becomes zero gives its place to the next pick. `reached` gets the
    first state of each size: where a solver asked for as many atoms would have stopped.
    """
    limit = 100 * n_components + 1000 if max_iterations is None else max_iterations
    states: dict[int, SelectionState] = {}
    complete, iterations = True, 0
    floor = _NumericFloor(_resolution(solver))
    # Sums over many candidates would depend on the number of BLAS threads in their last bits.
    with one_blas_thread(), track("selecting features", n_components, "features") as bar:
        for state in _states(solver, limit, refit):
            iterations += 1
            if state is None:
                complete = False
                break
            size = len(state.atoms)
            bar.advance(size - len(states) if size > len(states) else 0)
            _keep(states, state)
            if reached is not None:
                reached.setdefault(size, state)
            if size >= n_components:
                break
            if floor.reached_by(state):  # the state that reached it is the best there is
                complete = False
                break
        else:
            complete = max_iterations is not None
    return Path(solver.gram.n_atoms, _thinned(states, n_components), iterations, complete)


def fill_up(path: Path, solver: Greedy, n_components: int) -> Path:
    """Fill a path that ended early to `n_components` atoms with the solver's next best ones.

    Where the best non-negative weights need fewer atoms than are wanted, which happens when labels
    are part of the target, the others come with next to no weight: they do not change the error,
    and refinement has them to move. At the numeric floor nothing is left to fill up for.
    """
    last = path.states[-1] if path.states else None
    if path.complete or last is None or last.error**2 < _resolution(solver):
        return path
    left = solver.usable.copy()
    left[last.atoms] = False
    # Those left first; among them by what the solver itself gave them, then by correlation.
    ranks = np.lexsort((-solver.c / solver.norms, -solver.w * solver.norms, ~left))
    extra = ranks[: min(n_components - len(last.atoms), int(left.sum()))]
    weights = np.full(len(extra), 1e-3 * float(np.median(last.weights)))
    atoms = np.concatenate([last.atoms, extra])
    full = SelectionState(atoms, np.concatenate([last.weights, weights]), last.error)
    return replace(path, states=[*path.states, full], complete=len(atoms) == n_components)


def _resolution(solver: Greedy) -> float:
    """Return the squared error below which all is rounding of the products in G."""
    return 8 * float(np.finfo(solver.gram.dtype).eps)


class _NumericFloor:
    """Notices when steps lead nowhere: rounding alone keeps single steps going forever."""

    def __init__(self, resolution: float) -> None:
        self.resolution, self.error, self.size, self.waited = resolution, math.inf, 0, 0

    def reached_by(self, state: SelectionState) -> bool:
        """Tell whether the squared error is rounding, or many steps have changed next to nothing.

        A target that no features reach, such as labels, keeps the error up while the set grows;
        a set that trades places at the same error is at its end.
        """
        if state.error**2 < self.resolution:
            return True
        size = len(state.atoms)
        if state.error < (1 - FLOOR_GAIN) * self.error or size > FLOOR_GROWTH * self.size:
            self.error, self.size, self.waited = min(state.error, self.error), size, 0
        self.waited += 1
        return self.waited > FLOOR_PATIENCE + size // 2


def _keep(states: dict[int, SelectionState], state: SelectionState) -> None:
    """Keep a state; where atoms have left, what was larger before was also worse and goes."""
    size = len(state.atoms)
    for larger in [known for known in reversed(states) if known > size]:
        del states[larger]
    states[size] = state


def _states(solver: Greedy, limit: int, refit: bool) -> Iterator[SelectionState | None]:
    """Yield the state after each step, and None when the solver finds nothing more to gain."""
    resolution = float(np.finfo(solver.gram.dtype).eps)
    fitted = None
    if refit and not isinstance(solver, Pursuit):
        fitted = GrowingNNLS(resolution=resolution)
    order: dict[int, None] = {}
    for _ in range(limit):
        atom = solver.step()
        if atom is None:
            yield None
            return
        order[atom] = None
        if fitted is None:
            yield _solver_state(solver, order)
        else:
            yield _refitted_state(solver, fitted, atom)


def _solver_state(solver: Greedy, order: dict[int, None]) -> SelectionState:
    # A step that was given up may leave an atom in a pursuit's refit, to get its weight later.
    if np.count_nonzero(solver.w) > len(order):
        order.update(dict.fromkeys(np.flatnonzero(solver.w).tolist()))
    atoms = np.fromiter(order, np.int64, len(order))
    atoms = atoms[solver.w[atoms] > 0]
    return SelectionState(atoms, solver.w[atoms], float(np.sqrt(solver.error2)))


def _refitted_state(solver: Greedy, fitted: GrowingNNLS, atom: int) -> SelectionState:
    if atom not in fitted.atoms:
        products = solver.gram.column(atom, solver.c)[fitted.atoms]
        fitted.enter(atom, products, solver.norms[atom] ** 2, solver.c[atom])
    atoms, weights = np.array(fitted.atoms, np.int64), fitted.weights
    # The weights solve (G + D) w = c over the set, with D what was added to the diagonal. So
    # ||t - x||^2 = ||t||^2 - 2 c.w + w.G w = ||t||^2 - c.w - w.D w, without a product with G.
    explained = weights @ solver.c[atoms] + fitted.resolution * np.sum(
        (weights * solver.norms[atoms]) ** 2
    )
    error2 = 1 - explained / solver.norm2
    return SelectionState(atoms, weights, math.sqrt(max(float(error2), 0.0)))


def _thinned(states: dict[int, SelectionState], n_components: int) -> list[SelectionState]:
    step = -(-n_components // MAX_STATES)
    last = max(states, default=0)
    return [states[size] for size in sorted(states) if size % step == 0 or size == last]


def _solve(
    solver: type[Greedy],
    G: Gram,
    c: Array,
    target_norm2: float,
    n_components: int,
    max_iterations: int | None,
) -> Path:
    if n_components < 1:
        raise ValueError(f"n_components={n_components} must be at least 1.")
    if not target_norm2 > 0:
        raise ValueError(f"target_norm2={target_norm2} must be above 0.")
    objective = DenseGram(G) if isinstance(G, np.ndarray) else G
    if n_components > objective.n_atoms:
        raise ValueError(
            f"n_components={n_components} is more than the {objective.n_atoms} candidates."
        )
    greedy = solver(ColumnCache(objective), c, float(target_norm2))
    return run_solver(greedy, n_components, refit=False, max_iterations=max_iterations)


def giga(
    G: Gram, c: Array, target_norm2: float, n_components: int, *, max_iterations: int | None = None
) -> Path:
    """Choose few weighted atoms whose sum is close to a target, by geodesic ascent.

    Parameters
    ----------
    G : array of shape (n_atoms, n_atoms) or Objective
        Inner products of the atoms, or an object that gives columns of them on demand.
    c : array of shape (n_atoms,)
        Inner products of the atoms with the target.
    target_norm2 : float
        Squared norm of the target.
    n_components : int
        How many distinct atoms to choose.
    max_iterations : int, optional
        Stop after this many steps even when fewer atoms are chosen.

    Returns
    -------
    Path
        With ``.weights`` of length n_atoms and ``.errors`` at each size.
    """
    return _solve(Giga, G, c, target_norm2, n_components, max_iterations)


def frank_wolfe(
    G: Gram, c: Array, target_norm2: float, n_components: int, *, max_iterations: int | None = None
) -> Path:
    """Choose few weighted atoms whose sum is close to a target, by Frank-Wolfe.

    See :func:`giga` for the parameters and the result.
    """
    return _solve(FrankWolfe, G, c, target_norm2, n_components, max_iterations)


def pursuit(
    G: Gram, c: Array, target_norm2: float, n_components: int, *, max_iterations: int | None = None
) -> Path:
    """Choose few weighted atoms whose sum is close to a target, by matching pursuit.

    See :func:`giga` for the parameters and the result.
    """
    return _solve(Pursuit, G, c, target_norm2, n_components, max_iterations)

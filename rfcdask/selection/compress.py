"""From gathered rows to compressed features: draw, select, judge, refine.

Each step is a function that takes what it needs and returns a frozen result:

    select         draws candidates and runs a greedy solver on the training rows -> Selection
    heldout_errors judges every size of its path on rows that the solver has not seen
    refine_atoms   moves the kept atoms by gradient steps -> Compression
    compress       all of it -> Compression

Nothing here knows of Dask: rows are in memory, and the memory to use is a number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, IntArray, Matrix, feature_dtype, is_sparse, vary
from rfcdask.kernels.frequencies import Frequencies, draw_candidates
from rfcdask.kernels.hot_loop import CosineBlock, unweighted_block
from rfcdask.kernels.runtime import release_memory
from rfcdask.kernels.seeds import stream
from rfcdask.selection import Path, SelectionState, fill_up, run_solver
from rfcdask.selection.candidates import Candidates, PairTarget, RowTarget
from rfcdask.selection.columns import ColumnCache, SharedCandidates
from rfcdask.selection.objective import AllPairs, SampledPairs, Track, gram, untracked
from rfcdask.selection.refine import (
    FeatureParameters,
    RefineResult,
    RowsWithTarget,
    centred,
    refine,
)
from rfcdask.selection.solvers import SOLVERS, Greedy

FLOAT32 = np.dtype(np.float32)
Pairs = tuple[IntArray, IntArray]  # indices of the first and of the second row of each sampled pair


@dataclass(frozen=True)
class CompressionSettings:
    """What to draw, how to select and for how long to refine."""

    kernel: Kernel
    gamma: float
    n_atoms: int  # frequencies to keep
    n_candidates: int  # frequencies to keep them of
    sampling: str  # how candidates are drawn; see :class:`rfcdask.CompressedFeatures`
    phases: str
    exact_target: bool  # the exact kernel is the target, not the candidates' own sum
    solver: str
    refit: bool
    tol: float | None
    refine_steps: int
    seed: int
    memory_budget: int  # bytes that may be held at once, about

    @property
    def squared_unit_scale(self) -> float:
        """The squared scale of a feature with weight 1."""
        return (1 if self.phases == "paired" else 2) / self.n_candidates


@dataclass(frozen=True)
class LabelledRows:
    """Rows in memory, and their label columns where labels are part of the target."""

    X: Matrix
    labels: Array | None = None


@dataclass(frozen=True)
class Selection:
    """What a solver chose on the training rows, at every size."""

    drawn: Frequencies  # all candidates
    block: CosineBlock  # their evaluator
    path: Path  # its last state holds as many atoms as were asked for
    target: RowTarget | None  # over all pairs of the training rows, where selection has used it
    spared: float = 0.0  # seconds that it would have taken alone, without columns of another


@dataclass(frozen=True)
class Compression:
    """The kept features (n of p columns), and how the error fell on the way."""

    selected: IntArray  # which candidates were kept, (n,)
    frequencies: Array  # (p, n)
    phases: Array  # (n,)
    weights: Array  # (n,)
    path: Path
    heldout_errors: Array  # the relative error on held-out pairs at each size of the path
    heldout_error: float  # the same of the features as they are here
    refinement: RefineResult | None = None


def compress(
    training: LabelledRows,
    pairs: Pairs | None,
    heldout: LabelledRows,
    settings: CompressionSettings,
    track: Track = untracked,
) -> Compression:
    """Select weighted atoms on the training rows, choose a size, and refine what is kept.

    Parameters
    ----------
    training : LabelledRows
    pairs : pair of index arrays or None
        The pairs of training rows to look at; None for all of them.
    heldout : LabelledRows
        Rows all pairs of which judge the result.
    settings : CompressionSettings
    track : callable, optional
        Reports the phases of the work.
    """
    ((found, _),) = compress_to_sizes(
        training, pairs, heldout, settings, (settings.n_atoms,), track
    )
    return found


def compress_to_sizes(
    training: LabelledRows,
    pairs: Pairs | None,
    heldout: LabelledRows,
    settings: CompressionSettings,
    sizes: Sequence[int],
    track: Track = untracked,
    shared: SharedCandidates | None = None,
) -> list[tuple[Compression, float]]:
    """Return what `compress` returns for each number of atoms, all by one run of the solver.

    Beside each stand the seconds of the selection and of its own refinement, with those that
    columns took which an earlier selection has `shared`.
    """
    start = time.perf_counter()
    settings = replace(settings, n_atoms=max(sizes))
    selections = select_sizes(training, pairs, settings, sizes, track, shared)
    release_memory()  # what solving has freed: judging takes pieces of other sizes
    judge = row_target(heldout, selections[0].block, settings)
    selecting = time.perf_counter() - start + selections[0].spared
    found = []
    for selection in selections:
        start = time.perf_counter()
        made = _judged_and_refined(selection, training, judge, settings, track)
        found.append((made, selecting + time.perf_counter() - start))
    return found


def _judged_and_refined(
    selection: Selection,
    training: LabelledRows,
    judge: RowTarget,
    settings: CompressionSettings,
    track: Track,
) -> Compression:
    errors = heldout_errors(selection, judge, settings, track)
    size = len(errors) - 1
    if settings.tol is not None and (errors <= settings.tol).any():
        size = int(np.argmax(errors <= settings.tol))
    state, drawn = selection.path.states[size], selection.drawn
    found = Compression(
        selected=state.atoms,
        frequencies=np.ascontiguousarray(drawn.vectors[:, state.atoms]),
        phases=drawn.phases[state.atoms],
        weights=state.weights,
        path=selection.path,
        heldout_errors=errors,
        heldout_error=float(errors[size]),
    )
    if not settings.refine_steps:
        return found
    goal = selection.target
    if goal is None:
        goal = row_target(training, selection.block, settings)
    return refine_atoms(found, goal, judge, settings, track)


def select(
    training: LabelledRows,
    pairs: Pairs | None,
    settings: CompressionSettings,
    track: Track = untracked,
) -> Selection:
    """Choose weighted atoms on the training rows, keeping what was found at every size."""
    return select_sizes(training, pairs, settings, (settings.n_atoms,), track)[0]


def select_sizes(
    training: LabelledRows,
    pairs: Pairs | None,
    settings: CompressionSettings,
    sizes: Sequence[int],
    track: Track = untracked,
    shared: SharedCandidates | None = None,
) -> list[Selection]:
    """Choose atoms for several sizes, of which the largest is that of the settings."""
    if not vary(training.X):
        raise ValueError(
            "All sampled rows of X are identical (constant data): there is nothing for the "
            "features to tell apart; give data that vary."
        )
    s = settings
    p = training.X.shape[1]
    drawn = draw_candidates(s.kernel, s.gamma, p, s.n_candidates, s.sampling, s.phases, s.seed)
    block = unweighted_block(drawn, s.phases, feature_dtype(training.X.dtype))
    columns = _columns(block, training, pairs, s, shared)
    solver, target = _make_solver(columns, training, pairs, s, track)
    reached: dict[int, SelectionState] = {}
    path = run_solver(solver, s.n_atoms, refit=s.refit, track=track, reached=reached)
    if not path.states:
        raise ValueError(
            "No candidate is correlated with the target on the sampled pairs; raise n_rows or "
            "n_candidates, or check that gamma fits the data (gamma='median' is a start)."
        )
    paths = [_path_to(size, path, reached, solver) for size in sizes]
    return [Selection(drawn, block, one, target, columns.spared) for one in paths]


def _path_to(size: int, path: Path, reached: dict[int, SelectionState], solver: Greedy) -> Path:
    """Return the beginning of a path that ends where `size` atoms were reached first."""
    last = len(path.states[-1].atoms)
    if size >= last or size not in reached:
        return fill_up(path, solver, size)
    before = [state for state in path.states if len(state.atoms) < size]
    return replace(path, states=[*before, reached[size]], complete=True)


def _columns(
    block: CosineBlock,
    training: LabelledRows,
    pairs: Pairs | None,
    settings: CompressionSettings,
    shared: SharedCandidates | None,
) -> ColumnCache:
    """Return the columns of G, those of another selection where they are the same."""
    s, X, budget = settings, training.X, settings.memory_budget

    def make() -> ColumnCache:
        objective: AllPairs | SampledPairs
        if pairs is None:
            objective = AllPairs(Candidates(block, X, FLOAT32, budget))
        else:
            sides = [Candidates(block, X[side], FLOAT32, 0) for side in pairs]
            objective = SampledPairs(sides[0], sides[1], budget)
        return ColumnCache(objective, budget // 3)

    if shared is None or is_sparse(X):
        return make()
    drawn = (s.kernel, s.gamma, s.n_candidates, s.sampling, s.phases, s.seed, budget)
    return shared.of((*drawn, X, *(pairs or ())), make)


def _make_solver(
    columns: ColumnCache,
    training: LabelledRows,
    pairs: Pairs | None,
    settings: CompressionSettings,
    track: Track,
) -> tuple[Greedy, RowTarget | None]:
    """Return a solver at its start and, where all pairs are looked at, their target."""
    objective: Any = columns.objective
    target: RowTarget | None = None
    if pairs is None:
        candidates = None if settings.exact_target else objective.candidates
        target = _row_target(training, candidates, settings)
        c, norm2 = objective.correlations(target, track)
    else:
        c, norm2 = objective.correlations(_pair_target(training, pairs, settings))
    return SOLVERS[settings.solver](columns, c, norm2), target


def heldout_errors(
    selection: Selection,
    target: RowTarget,
    settings: CompressionSettings,
    track: Track = untracked,
) -> Array:
    """Return the relative error over all pairs of the target's rows at each size of the path."""
    states = selection.path.states
    # In the order of picking, where nearly every state is a beginning of the whole.
    union = np.array(list(dict.fromkeys(np.concatenate([state.atoms for state in states]))))
    place = {atom: k for k, atom in enumerate(union)}
    chosen = Candidates(selection.block.take(union), target.rows, FLOAT32, settings.memory_budget)
    objective = AllPairs(chosen)
    c, norm2 = objective.correlations(target, track)
    if not norm2 > 0:
        raise ValueError(
            f"The kernel of every pair of the {target.rows.shape[0]:,} held-out rows "
            f"is 0 at gamma={settings.gamma:.4g}: no two rows are alike; lower gamma "
            "(gamma='median' is a start), or give more rows."
        )
    G = gram(objective).astype(np.float64)

    def squared_error(state: SelectionState) -> float:
        w, size = state.weights, len(state.atoms)
        if np.array_equal(state.atoms, union[:size]):
            return float(norm2 - 2 * w @ c[:size] + w @ G[:size, :size] @ w)
        at = [place[atom] for atom in state.atoms]
        return float(norm2 - 2 * w @ c[at] + w @ G[np.ix_(at, at)] @ w)

    squares = np.array([squared_error(state) for state in states])
    return np.asarray(np.sqrt(np.maximum(squares, 0) / norm2))


def refine_atoms(
    found: Compression,
    training: RowTarget,
    heldout: RowTarget,
    settings: CompressionSettings,
    track: Track = untracked,
) -> Compression:
    """Move the kept atoms by gradient steps, where that lowers the held-out error.

    Refinement works on angles in turns, from the mean of the rows, and on the scales of the
    features instead of their weights; what it returns is translated back.
    """
    is_rbf = settings.kernel.name == "rbf"
    size = float(np.sqrt(2 * settings.gamma) if is_rbf else settings.gamma)
    # A power of two changes no digit, and lets squares of gradients neither overflow nor vanish.
    unit = 2.0 ** round(np.log2(size))
    X, mean, move = centred(training.rows, unit)
    start = FeatureParameters(
        np.asarray(found.frequencies / unit / (2 * np.pi), np.float32),
        np.asarray(_wrap((found.phases + mean @ found.frequencies) / (2 * np.pi))),
        np.sqrt(settings.squared_unit_scale * found.weights).astype(np.float32),
        settings.phases == "paired",
    )
    result = refine(
        start,
        RowsWithTarget(X, training),
        RowsWithTarget(move(heldout.rows), heldout),
        n_steps=settings.refine_steps,
        frequency_unit=size / unit,
        rng=stream(settings.seed, "refine"),
        track=track,
    )
    if result.features is start:  # bit for bit what came in, not its rounding to float32
        return replace(found, refinement=result)
    return _with_refined(found, result, mean, unit, settings)


def _with_refined(
    found: Compression,
    result: RefineResult,
    mean: Array,
    unit: float,
    settings: CompressionSettings,
) -> Compression:
    moved = result.features
    frequencies = 2 * np.pi * moved.turns.astype(np.float64) * unit
    turns = moved.phases + 0.5 * (moved.scales < 0)  # a negative scale is half a turn
    return replace(
        found,
        frequencies=frequencies,
        phases=np.mod(2 * np.pi * turns - mean @ frequencies, 2 * np.pi),
        weights=moved.scales.astype(np.float64) ** 2 / settings.squared_unit_scale,
        heldout_error=result.error_after,
        refinement=result,
    )


def row_target(part: LabelledRows, block: CosineBlock, settings: CompressionSettings) -> RowTarget:
    """Return the target over all pairs of some rows."""
    candidates = None
    if not settings.exact_target:
        candidates = Candidates(block, part.X, FLOAT32, settings.memory_budget)
    return _row_target(part, candidates, settings)


def _row_target(
    part: LabelledRows, candidates: Candidates | None, settings: CompressionSettings
) -> RowTarget:
    return RowTarget(
        part.X,
        settings.kernel if settings.exact_target else None,
        settings.gamma,
        labels=part.labels,
        candidates=candidates,
        dtype=FLOAT32,
        budget=settings.memory_budget // 4,
    )


def _pair_target(part: LabelledRows, pairs: Pairs, settings: CompressionSettings) -> PairTarget:
    i, j = pairs
    products: Array | float = 0.0
    if part.labels is not None:
        products = np.einsum("ij,ij->i", part.labels[i], part.labels[j])
    if not settings.exact_target:
        return PairTarget(None, products)
    return PairTarget(settings.kernel.exact_pairs(part.X[i], part.X[j], settings.gamma), products)


def _wrap(turns: Array) -> Array:
    return (turns - np.rint(turns)).astype(np.float32)

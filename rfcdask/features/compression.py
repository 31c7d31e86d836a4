"""The steps of a compression on gathered rows: candidates, objective, path, refinement."""

from __future__ import annotations

from dataclasses import dataclass, field

import dask.config
import numpy as np
from dask.utils import parse_bytes

from rfcdask._types import Array, IntArray, Matrix
from rfcdask.blocks import CosineBlock, feature_dtype
from rfcdask.features.paths import ErrorPath, RefinePath
from rfcdask.features.random import draw_candidates, unweighted_block
from rfcdask.frequencies import Frequencies
from rfcdask.kernels import Kernel
from rfcdask.seeds import stream
from rfcdask.selection.all_pairs import AllPairs
from rfcdask.selection.candidates import Candidates
from rfcdask.selection.columns import ColumnCache
from rfcdask.selection.objective import gram
from rfcdask.selection.path import SOLVERS, Path, State, fill_up, follow
from rfcdask.selection.refine import Features, Rows, centred, refine
from rfcdask.selection.sampled_pairs import SampledPairs
from rfcdask.selection.target import PairTarget, RowTarget
from rfcdask.sparse import is_sparse

FLOAT32 = np.dtype(np.float32)


def memory_budget() -> int:
    """Return the bytes selection may hold, ``rfcdask.selection-memory`` (default 3 GiB)."""
    return int(parse_bytes(dask.config.get("rfcdask.selection-memory", "3GiB")))


@dataclass
class Compression:
    """One compression; `select` and `refine` fill in what is found."""

    kernel: Kernel
    gamma: float
    n_atoms: int
    n_candidates: int
    sampling: str
    phases: str
    exact_target: bool
    seed: int
    frequencies: Array = field(init=False)
    phases_of_atoms: Array = field(init=False)
    weights: Array = field(init=False)
    selected: IntArray = field(init=False)
    error_path: ErrorPath = field(init=False)
    refine_path: RefinePath | None = field(init=False, default=None)
    heldout_error: float = field(init=False)

    def select(
        self,
        rows: Matrix,
        pairs: tuple[IntArray, IntArray] | None,
        heldout: Matrix,
        labels: Array | None,
        heldout_labels: Array | None,
        *,
        solver: str,
        refit: bool,
        tol: float | None,
    ) -> None:
        """Choose atoms for the gathered rows, judge every size on the held-out ones, keep one."""
        self.choose(rows, pairs, labels, solver=solver, refit=refit)
        self.judge(heldout, heldout_labels, tol)

    def choose(
        self,
        rows: Matrix,
        pairs: tuple[IntArray, IntArray] | None,
        labels: Array | None,
        *,
        solver: str,
        refit: bool,
    ) -> None:
        """Choose weighted atoms for the gathered rows, keeping what was found at every size."""
        self._remember(rows, labels)
        drawn = draw_candidates(
            self.kernel,
            self.gamma,
            rows.shape[1],
            self.n_candidates,
            self.sampling,
            self.phases,
            self.seed,
        )
        block = unweighted_block(drawn, self.phases, feature_dtype(rows.dtype))
        path = self._follow(block, pairs, solver, refit)
        _require_atoms(path)
        self._found = drawn, block, path
        self._adopt(path.states[-1], drawn)

    def judge(self, heldout: Matrix, labels: Array | None, tol: float | None) -> None:
        """Find the error at every size on held-out rows; `tol` takes the first size below it."""
        self._heldout, self._heldout_labels = heldout, labels
        drawn, block, path = self._found
        errors = self._heldout_errors(block, path)
        self.error_path = ErrorPath(path.sizes, path.errors, errors)
        last = len(errors) - 1
        if tol is not None and (errors <= tol).any():
            last = int(np.argmax(errors <= tol))
        self.heldout_error = float(errors[last])
        self._adopt(path.states[last], drawn)

    def refine(self, n_steps: int) -> None:
        """Move the kept atoms by gradient steps, where that lowers the held-out error."""
        rows, mean, move = centred(self._rows)
        factor = self._factor()
        start = Features(
            np.asarray(self.frequencies / (2 * np.pi), np.float32),
            np.asarray(_wrap((self.phases_of_atoms + mean @ self.frequencies) / (2 * np.pi))),
            np.sqrt(factor * self.weights).astype(np.float32),
            self.phases == "paired",
        )
        found = refine(
            start,
            Rows(rows, self._training_target()),
            Rows(move(self._heldout), self._heldout_target()),
            n_steps=n_steps,
            frequency_unit=np.sqrt(2 * self.gamma) if self.kernel.name == "rbf" else self.gamma,
            rng=stream(self.seed, "refine"),
        )
        self.refine_path = RefinePath(found.steps, found.errors)
        if found.features is start:
            return
        moved = found.features
        self.heldout_error = found.error_after
        self.frequencies = 2 * np.pi * moved.turns.astype(np.float64)
        turned = moved.phases + 0.5 * (moved.scales < 0)  # a negative scale is half a turn
        self.phases_of_atoms = np.mod(2 * np.pi * turned - mean @ self.frequencies, 2 * np.pi)
        self.weights = moved.scales.astype(np.float64) ** 2 / factor

    def _factor(self) -> float:
        """Squared scale of an atom with weight 1."""
        return (1 if self.phases == "paired" else 2) / self.n_candidates

    def _remember(self, rows: Matrix, labels: Array | None) -> None:
        self._rows, self._labels = rows, labels
        if _rows_are_equal(rows):
            raise ValueError(
                "All sampled rows of X are identical (constant data): there is nothing for the "
                "features to tell apart; give data that vary."
            )
        self._target: RowTarget | None = None
        self._candidates: Candidates | None = None

    def _follow(
        self,
        block: CosineBlock,
        pairs: tuple[IntArray, IntArray] | None,
        solver: str,
        refit: bool,
    ) -> Path:
        budget = memory_budget()
        objective: AllPairs | SampledPairs
        if pairs is None:
            self._candidates = Candidates(block, self._rows, FLOAT32, budget)
            objective = AllPairs(self._candidates)
            c, norm2 = objective.correlations(self._training_target())
        else:
            sides = [Candidates(block, self._rows[side], FLOAT32, 0) for side in pairs]
            objective = SampledPairs(sides[0], sides[1], budget)
            c, norm2 = objective.correlations(self._pair_target(pairs))
            self._block = block
        greedy = SOLVERS[solver](ColumnCache(objective, budget // 3), c, norm2)
        return fill_up(follow(greedy, self.n_atoms, refit=refit), greedy, self.n_atoms)

    def _training_target(self) -> RowTarget:
        if self._target is None:
            if self._candidates is None and not self.exact_target:
                budget = memory_budget()
                self._candidates = Candidates(self._block, self._rows, FLOAT32, budget)
            self._target = RowTarget(
                self._rows,
                self.kernel if self.exact_target else None,
                self.gamma,
                labels=self._labels,
                candidates=self._candidates,
                dtype=FLOAT32,
                budget=memory_budget() // 4,
            )
        return self._target

    def _heldout_target(self) -> RowTarget:
        candidates = None
        if not self.exact_target:
            candidates = Candidates(
                self._block_of_target(), self._heldout, FLOAT32, memory_budget()
            )
        return RowTarget(
            self._heldout,
            self.kernel if self.exact_target else None,
            self.gamma,
            labels=self._heldout_labels,
            candidates=candidates,
            dtype=FLOAT32,
            budget=memory_budget() // 4,
        )

    def _block_of_target(self) -> CosineBlock:
        return self._candidates.block if self._candidates is not None else self._block

    def _pair_target(self, pairs: tuple[IntArray, IntArray]) -> PairTarget:
        i, j = pairs
        extra: Array | float = 0.0
        if self._labels is not None:
            extra = np.einsum("ij,ij->i", self._labels[i], self._labels[j])
        if not self.exact_target:
            return PairTarget(None, extra)
        return PairTarget(self.kernel.exact_pairs(self._rows[i], self._rows[j], self.gamma), extra)

    def _heldout_errors(self, block: CosineBlock, path: Path) -> Array:
        """Return the relative error over all pairs of held-out rows at each size of the path."""
        # In the order of picking, where nearly every state is a beginning of the whole.
        union = np.array(list(dict.fromkeys(np.concatenate([s.atoms for s in path.states]))))
        place = {atom: k for k, atom in enumerate(union)}
        chosen = Candidates(block.take(union), self._heldout, FLOAT32, memory_budget())
        objective = AllPairs(chosen)
        c, norm2 = objective.correlations(self._heldout_target())
        if not norm2 > 0:
            raise ValueError(
                f"The kernel of every pair of the {self._heldout.shape[0]:,} held-out rows "
                f"is 0 at gamma={self.gamma:.4g}: no two rows are alike; lower gamma "
                "(gamma='median' is a start), or give more rows."
            )
        G = gram(objective).astype(np.float64)

        def error(state: State) -> float:
            w, size = state.weights, len(state.atoms)
            if np.array_equal(state.atoms, union[:size]):
                return float(norm2 - 2 * w @ c[:size] + w @ G[:size, :size] @ w)
            at = [place[atom] for atom in state.atoms]
            return float(norm2 - 2 * w @ c[at] + w @ G[np.ix_(at, at)] @ w)

        squares = np.array([error(state) for state in path.states])
        return np.asarray(np.sqrt(np.maximum(squares, 0) / norm2))

    def _adopt(self, state: State, drawn: Frequencies) -> None:
        self.selected = state.atoms
        self.weights = state.weights
        self.frequencies = np.ascontiguousarray(drawn.vectors[:, state.atoms])
        self.phases_of_atoms = drawn.phases[state.atoms]


def _rows_are_equal(rows: Matrix) -> bool:
    spread = rows.max(axis=0) - rows.min(axis=0)
    return not np.any(spread.toarray() if is_sparse(spread) else spread)


def _wrap(turns: Array) -> Array:
    return (turns - np.rint(turns)).astype(np.float32)


def _require_atoms(path: Path) -> None:
    if not path.states:
        raise ValueError(
            "No candidate is correlated with the target on the sampled pairs; raise n_rows or "
            "n_candidates, or check that gamma fits the data (gamma='median' is a start)."
        )

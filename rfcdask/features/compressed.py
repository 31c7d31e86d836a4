"""Compressed features: a few of many random features, chosen and weighted for the data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from rfcdask.data.sample import (
    check_container,
    gather,
    gather_finite,
    lazy_column,
    require_known_rows,
)
from rfcdask.display import count, number
from rfcdask.display.charts import curve, error_path
from rfcdask.display.drawing import Chart
from rfcdask.display.html import Facts, render_repr
from rfcdask.execution.configuration import configured_bytes
from rfcdask.execution.progress import track
from rfcdask.features.base import Evaluator, FeatureMap
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.kernels.arrays import (
    Array,
    DaskArray,
    IntArray,
    Matrix,
    RandomState,
    feature_dtype,
    is_sparse,
    missing_labels,
)
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.seeds import draw_pairs, draw_parts, draw_rows, seed_of
from rfcdask.selection.candidates import label_columns
from rfcdask.selection.columns import SharedCandidates
from rfcdask.selection.compress import (
    Compression,
    CompressionSettings,
    LabelledRows,
    compress_to_sizes,
)
from rfcdask.selection.solvers import check_solver

if TYPE_CHECKING:
    from distributed import Client

HELDOUT_ROWS = 1000  # rows all pairs of which are kept away from selection to judge it


def memory_budget() -> int:
    """Return the bytes selection may hold, ``rfcdask.selection-memory`` (default 3 GiB)."""
    return configured_bytes("selection-memory", 3 * 2**30)


class ErrorPath(NamedTuple):
    """Relative errors of a selection at each size."""

    sizes: IntArray
    sampled: Array
    heldout: Array

    def plot(
        self, ax: Any = None, *, chosen: int | None = None, refined: float | None = None
    ) -> Any:
        """Draw both errors against the number of features; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        chosen : int, optional
            The size that was kept, which is marked.
        refined : float, optional
            The held-out error at that size after refinement.
        """
        return self.chart(chosen=chosen, refined=refined).plot(ax)

    def chart(self, *, chosen: int | None = None, refined: float | None = None) -> Chart:
        """Return the same, not drawn yet."""
        columns = (self.sizes.tolist(), self.sampled.tolist(), self.heldout.tolist())
        return error_path(*columns, chosen, refined)

    def _repr_html_(self) -> str:
        return render_repr(charts=[self.chart()])


class RefinePath(NamedTuple):
    """Relative error on held-out pairs while features were refined."""

    steps: IntArray
    heldout: Array

    def plot(self, ax: Any = None) -> Any:
        """Draw the error against the steps; returns the axes."""
        return self._chart().plot(ax)

    def _chart(self) -> Chart:
        steps, errors = self.steps.tolist(), self.heldout.tolist()
        return curve(steps, errors, "steps of refinement", "relative error, held out")

    def _repr_html_(self) -> str:
        return render_repr(charts=[self._chart()])


class _Gathered(NamedTuple):
    """The rows in memory: those to learn from, the pairs of them (None: all), the held-out ones."""

    training: LabelledRows
    pairs: tuple[IntArray, IntArray] | None
    heldout: LabelledRows


class CompressedFeatures(FeatureMap):
    """Random features compressed for the data [1]_.

    Many candidate features are drawn and evaluated on a small sample of the rows only. A greedy
    solver keeps few of them with weights, such that their inner products are close to the kernel
    on pairs of sampled rows; the kept ones are then refined by gradient steps. All other rows are
    only ever touched by the kept features.

    Parameters
    ----------
    n_components : int, default=500
        The number of features J that are kept, which is the number of output columns.
    kernel : {"rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52"} or Kernel
    gamma : float, "scale" or "median", default="scale"
        The kernel's width; as a rule, computed from the sampled rows.
    n_candidates : int, default=5000
        The number of candidate features J+.
    solver : {"giga", "frank-wolfe", "pursuit"}, default="giga"
    n_rows : int, default=5000
        Rows whose pairs are all looked at; 1,000 more are held out to judge the result.
    n_pairs : int, optional
        Look at this many independent pairs instead of all pairs of `n_rows` rows.
    target : {"kernel", "candidates"}, default="kernel"
        What to come close to: the exact kernel, or the sum over all candidates (as in [1]_).
    refit : bool, default=True
        Whether the weights of the kept features are the best non-negative ones.
    refine : int, default=300
        Gradient steps on frequencies, phases and scales of the kept features; 0 for none.
    tol : float, optional
        Keep only as many features as are needed for this relative error on held-out pairs.
    label_weight : float, default=0.0
        How much the features shall also separate the labels. Above 0 the map no longer
        approximates the kernel alone.
    sampling : {"iid", "orthogonal", "halton", "sobol", "fastfood"}, default="iid"
        How the candidates' frequencies depend on each other.
    phases : {"random", "paired"}, default="random"
        ``"paired"`` keeps the cosine and the sine of J / 2 frequencies.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    frequencies_ : array of shape (n_features_in_, J)
        In the order in which they were picked. With paired phases these and the following are of
        the J / 2 frequencies.
    phases_ : array of shape (J,)
    weights_ : array of shape (J,)
        Feature j is ``sqrt(2 w_j / n_candidates) cos(frequencies_[:, j] . x + phases_[j])``.
    selected_ : array of int of shape (J,)
        Which candidates were picked.
    error_path_ : ErrorPath
        ``sizes``, and the relative error at each on the ``sampled`` and on the ``heldout`` pairs,
        before refinement.
    refine_path_ : RefinePath or None
        ``steps``, and the relative error on the held-out pairs after each.
    heldout_error_ : float
        The relative error on held-out pairs of the features as they are returned.
    gamma_ : float

    References
    ----------
    .. [1] Agrawal, R., Campbell, T., Huggins, J. and Broderick, T. (2019). Data-dependent
       compression of random features for large-scale kernel approximation. AISTATS.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(500, 4))
    >>> features = rf.CompressedFeatures(20, n_candidates=200, random_state=0).fit(X)
    >>> features.transform(X).shape
    (500, 20)
    """

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        n_candidates: int = 5000,
        solver: str = "giga",
        n_rows: int = 5000,
        n_pairs: int | None = None,
        target: str = "kernel",
        refit: bool = True,
        refine: int = 300,
        tol: float | None = None,
        label_weight: float = 0.0,
        sampling: str = "iid",
        phases: str = "random",
        random_state: RandomState = None,
    ) -> None:
        super().__init__(n_components, kernel=kernel, gamma=gamma, random_state=random_state)
        self.n_candidates = n_candidates
        self.solver = solver
        self.n_rows = n_rows
        self.n_pairs = n_pairs
        self.target = target
        self.refit = refit
        self.refine = refine
        self.tol = tol
        self.label_weight = label_weight
        self.sampling = sampling
        self.phases = phases

    _learned_last = "weights_"

    @classmethod
    def paper(
        cls, n_components: int = 500, *, solver: str = "giga", n_pairs: int = 20_000, **others: Any
    ) -> Self:
        """Return the map as the paper has it: RFM-GIGA, or RFM-FW with ``solver="frank-wolfe"``."""
        settings: dict[str, Any] = {"target": "candidates", "refit": False, "refine": 0} | others
        return cls(n_components, solver=solver, n_pairs=n_pairs, **settings)

    def _check_parameters(self) -> None:
        self._check_counts(n_components=1, n_candidates=1, n_rows=2, refine=0)
        if self.n_pairs is not None:
            self._check_counts(n_pairs=1)
        self._check_draw()
        check_solver(self.solver)
        self._check_choice("target", "kernel", "candidates")
        self._n_frequencies("n_components")
        self._n_frequencies("n_candidates")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.n_components > self.n_candidates:
            raise ValueError(
                f"n_components={self.n_components} features cannot be chosen from "
                f"n_candidates={self.n_candidates}; raise n_candidates."
            )
        if self.target == "kernel" and not get_kernel(self.kernel).has_closed_form:
            raise ValueError(
                f"target='kernel' needs exact values, but kernel {get_kernel(self.kernel).name!r} "
                "has no closed form; use target='candidates'."
            )
        if self.tol is not None and not (_is_number(self.tol) and self.tol > 0):
            raise ValueError(f"tol={self.tol!r} must be a number above 0, or None.")
        if not (_is_number(self.label_weight) and 0 <= self.label_weight < np.inf):
            raise ValueError(f"label_weight={self.label_weight!r} must be a number of at least 0.")
        if not isinstance(self.refit, (bool, np.bool_)):
            raise ValueError(f"refit={self.refit!r} must be True or False.")

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        self._fit_sizes([self], X, y, client)

    def fit_sizes(
        self,
        X: Any,
        y: Any = None,
        *,
        sizes: Sequence[int],
        client: Client | None = None,
        shared: SharedCandidates | None = None,
    ) -> list[tuple[Self, float]]:
        """Return fitted maps of several sizes, each as `fit` would give it, by one selection.

        Parameters
        ----------
        X, y, client
            As in `fit`.
        sizes : sequence of int
            Values of ``n_components``.
        shared : SharedCandidates, optional
            What other selections on the same rows have in common with this one; no pick changes.

        Returns
        -------
        list of pairs
            A map, and the seconds of the selection and of its own refinement.
        """
        maps = [clone(self).set_params(n_components=size) for size in sizes]
        seed = seed_of(self.random_state)
        for one in maps:
            one._check_parameters()
            checked, one.seed_ = one._check_input(X, reset=True), seed
        return list(zip(maps, self._fit_sizes(maps, checked, y, client, shared), strict=True))

    @staticmethod
    def _fit_sizes(
        maps: Sequence[CompressedFeatures], X: Any, y: Any, client: Any, shared: Any = None
    ) -> list[float]:
        """Fit maps that differ in size alone; returns the seconds of each."""
        self = maps[-1]
        gathered = self._gather(X, self._check_labels(X, y), client)
        kernel = self._resolve_kernel(gathered.training.X)
        settings = CompressionSettings(
            kernel=kernel,
            gamma=self.gamma_,
            n_atoms=self._n_frequencies("n_components"),
            n_candidates=self._n_frequencies("n_candidates"),
            sampling=self.sampling,
            phases=self.phases,
            exact_target=self.target == "kernel",
            solver=self.solver,
            refit=self.refit,
            tol=self.tol,
            refine_steps=self.refine,
            seed=self.seed_,
            memory_budget=memory_budget(),
        )
        sizes = [one._n_frequencies("n_components") for one in maps]
        found = compress_to_sizes(*gathered, settings, sizes, track, shared)
        for one, (kept, _) in zip(maps, found, strict=True):
            one.gamma_ = self.gamma_
            one._keep(kept)
        return [seconds for _, seconds in found]

    def _keep(self, found: Compression) -> None:
        self.frequencies_, self.phases_ = found.frequencies, found.phases
        self.weights_, self.selected_ = found.weights, found.selected
        path, refined = found.path, found.refinement
        self.error_path_ = ErrorPath(path.sizes, path.errors, found.heldout_errors)
        self.refine_path_ = None if refined is None else RefinePath(refined.steps, refined.errors)
        self.heldout_error_ = found.heldout_error
        if len(self.weights_) < self._n_frequencies("n_components") and self.tol is None:
            warnings.warn(
                f"Only {self._n_features_out} of n_components={self.n_components} features are "
                "kept: the error on the sampled pairs has reached its numeric floor, and more "
                "features would not lower it. Give more rows, or fewer n_components.",
                UserWarning,
                stacklevel=5,
            )

    def _check_labels(self, X: Matrix | DaskArray, y: Any) -> Any:
        if not self.label_weight:
            return None
        if y is None:
            raise ValueError(
                f"label_weight={self.label_weight} needs labels: call fit(X, y), or set "
                "label_weight=0."
            )
        y = lazy_column(y)
        check_container(y, "y")
        if is_sparse(y):
            raise ValueError("y is a sparse matrix, but labels are looked at whole: y.toarray().")
        y = y if hasattr(y, "shape") else np.asarray(y)
        if isinstance(y, da.Array):
            require_known_rows(y, "y")
        if not y.shape or y.shape[0] != X.shape[0]:
            held = f"{y.shape[0]} rows" if y.shape else "a single value"
            raise ValueError(
                f"X has {X.shape[0]} rows and y has {held}: give one label for each row."
            )
        return y

    def _gather(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> _Gathered:
        """Fetch the sampled and the held-out rows, and their labels, in one go each."""
        n = X.shape[0]
        if self.n_pairs is None:
            sampled, heldout = _split(n, self.n_rows, self._stream("rows"))
            pairs = None
        else:
            i, j = draw_pairs(n, self.n_pairs, self._stream("pairs"))
            sampled, inverse = np.unique(np.concatenate([i, j]), return_inverse=True)
            pairs = (inverse[: len(i)], inverse[len(i) :])
            heldout = draw_rows(n, min(n, HELDOUT_ROWS), self._stream("rows"))
        found = gather_finite(X, np.concatenate([sampled, heldout]), client)
        found = found.astype(feature_dtype(found.dtype), copy=False)
        rows, rest = found[: len(sampled)], found[len(sampled) :]
        if y is None:
            return _Gathered(LabelledRows(rows), pairs, LabelledRows(rest))
        y = y.to_numpy() if hasattr(y, "to_numpy") else y
        y = _without_missing(np.asarray(gather(y, np.concatenate([sampled, heldout]), client)))
        labels = label_columns(y) * np.sqrt(self.label_weight)
        labels, rest_labels = labels[: len(sampled)], labels[len(sampled) :]
        return _Gathered(LabelledRows(rows, labels), pairs, LabelledRows(rest, rest_labels))

    def plot(self, ax: Any = None) -> Any:
        """Draw the error path with the size that was kept; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        check_is_fitted(self, "error_path_")
        return self._chart().plot(ax)

    def _chart(self) -> Chart:
        after = self.heldout_error_ if getattr(self, "refine_path_", None) is not None else None
        return self.error_path_.chart(chosen=len(self.weights_), refined=after)

    def _facts(self) -> Facts:
        known = super()._facts()
        if not known or not hasattr(self, "heldout_error_"):
            return known
        chosen = f"of {count(self.n_candidates)} candidates by {self.solver}"
        return [
            (known[0][0], f"{known[0][1]} {chosen}"),
            *known[1:],
            ("held-out error", number(self.heldout_error_)),
        ]

    @property
    def _n_features_out(self) -> int:
        return len(self.weights_) * (2 if self.phases == "paired" else 1)

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        paired, n = self.phases == "paired", self._n_frequencies("n_candidates")
        scales = np.sqrt((1 if paired else 2) * self.weights_ / n)
        return CosineBlock.make(self.frequencies_, self.phases_, scales, dtype, paired=paired)


def _without_missing(y: Array) -> Array:
    missing = missing_labels(y)
    if missing.any():
        raise ValueError(
            f"y has {int(missing.sum())} of {len(y)} sampled labels missing (None, NaN or "
            "infinity); drop the rows without a label first."
        )
    return y


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _split(n: int, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw rows to learn from and rows to judge by; tiny data must serve as both."""
    if n < 10:
        rows = draw_rows(n, n, rng)
        return rows, rows
    heldout = min(HELDOUT_ROWS, max(2, n // 5))
    sampled, rest = draw_parts(n, (min(size, n - heldout), heldout), rng)
    return sampled, rest

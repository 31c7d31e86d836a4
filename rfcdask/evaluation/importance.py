"""Which columns a fitted model needs: what it loses when the values of one are permuted."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from rfcdask.data.sample import gather_finite
from rfcdask.display import number
from rfcdask.display.charts import bars
from rfcdask.display.drawing import Chart
from rfcdask.display.html import Table, render_repr
from rfcdask.evaluation.evaluate import ModelCounts, columns_of_model, count_blocks
from rfcdask.features.base import check_count
from rfcdask.kernels.arrays import Array, IntArray, RandomState, is_sparse, to_dense
from rfcdask.kernels.seeds import draw_rows, hash_rows, seed_of, stream
from rfcdask.linear import check_scoring
from rfcdask.linear.inputs import check_data
from rfcdask.linear.rows import dense
from rfcdask.linear.transform import Standardizer

if TYPE_CHECKING:
    from distributed import Client

DONORS = 10_000
"""Rows in memory from which permuted values are taken."""
SLOPE_ROWS = 256
"""Rows whose gradients are in memory at a time."""
MOST_DRAWN = 25


@dataclass(frozen=True)
class PermutationImportance:
    """What a model loses without each column, as scikit-learn's function of that name returns it.

    Attributes
    ----------
    importances : array of shape (columns, n_repeats)
        The score on the rows as they are, less that with the values of a column permuted.
    importances_mean, importances_std : arrays of shape (columns,)
    names : list of str
        Of the columns, or of the groups of columns that were permuted together.
    scoring : str
    score : float
        On the rows as they are.
    gradients : array of shape (columns,) or None
        The size of the gradient, where it was asked for.
    """

    importances: Array
    names: list[str]
    scoring: str
    score: float
    gradients: Array | None = None

    @property
    def importances_mean(self) -> Array:
        """Means over repeats."""
        return np.asarray(self.importances.mean(1))

    @property
    def importances_std(self) -> Array:
        """Standard deviations over repeats."""
        return np.asarray(self.importances.std(1))

    @property
    def table(self) -> Table:
        """One row per column, the most important first."""
        mean, deviation, slopes = self.importances_mean, self.importances_std, self.gradients
        return Table(
            [
                {
                    "column": self.names[k],
                    "importance": float(mean[k]),
                    "deviation": float(deviation[k]),
                }
                | ({} if slopes is None else {"gradient": float(slopes[k])})
                for k in np.argsort(-mean, kind="stable")
            ]
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the most important columns; returns the axes."""
        return self._chart().plot(ax)

    def _chart(self) -> Chart:
        rows = list(self.table)[:MOST_DRAWN]
        values = [row["importance"] for row in rows]
        what = f"loss of {self.scoring.removeprefix('neg_').replace('_', ' ')}"
        return bars([row["column"] for row in rows], values, what, [number(v) for v in values])

    def __repr__(self) -> str:
        first = [f"{row['column']} {row['importance']:.4g}" for row in list(self.table)[:5]]
        more = ", ..." if len(self.names) > 5 else ""
        return f"PermutationImportance({self.scoring}={self.score:.4g}: {', '.join(first)}{more})"

    def _repr_html_(self) -> str:
        tables = [("All columns", self.table)]
        return render_repr(code=repr(self), charts=[self._chart()], tables=tables)


def permutation_importance(
    model: Any,
    X: Any,
    y: Any,
    *,
    scoring: str | None = None,
    n_repeats: int = 5,
    random_state: RandomState = None,
    sample_weight: Any = None,
    feature_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str | int]] | str | None = None,
    gradient: bool = False,
    client: Client | None = None,
    progress: Any = None,
) -> PermutationImportance:
    """Measure what a fitted model loses when the values of each column are permuted.

    Blocks are read once and never joined: in the place of its own value a row is given that of one
    of 10,000 rows drawn from all, where scikit-learn's function of this name permutes the whole
    column. Which one depends on the seed and the number of the row, not on the chunks.

    Parameters
    ----------
    model : fitted classifier or regressor, or pipeline
        Of this package or of scikit-learn.
    X : array, CSR or dask array of shape (n, p), or a table for a TableEncoder
        Rows that the model did not learn from. Each is predicted ``1 + p n_repeats`` times.
    y : array or dask array of shape (n,) or (n, targets)
    scoring : str, optional
        scikit-learn's name of a metric; "accuracy" or "r2" unless given.
    n_repeats : int
        How often each column is permuted.
    random_state : int, RandomState, Generator or None
    sample_weight : array or dask array of shape (n,), optional
    feature_names : sequence of str, optional
        Names of the columns, where the model does not know them.
    groups : mapping of str to names or numbers of columns, or "source", optional
        Columns whose values are permuted together, from the same row; others are permuted alone.
        One level of a category without the others would make rows that cannot be. "source" are
        the columns of the table that the model's own :class:`TableEncoder` encodes, which is the
        default for such a model; of a store they are ``rf.TableEncoder.of(dataset).sources()``.
    gradient : bool
        Whether to return the size of the gradient too, of a KernelClassifier or KernelRegressor:
        the mean over rows of the absolute derivative of the scores by the column, times the
        standard deviation of the column (of the 10,000 rows), as root mean square over the scores
        and norm over a group.
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Returns
    -------
    PermutationImportance

    Notes
    -----
    Columns that say the same stand in for each other: each alone may then seem unimportant.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = (X[:, 1] > 0).astype(int)
    >>> model = rf.RidgeClassifier().fit(X, y)
    >>> int(rf.permutation_importance(model, X, y, random_state=0).importances_mean.argmax())
    1
    """
    check_count("n_repeats", n_repeats)
    model, X, feature_names, grouped = _encoded(model, X, feature_names, groups)
    learner = model[-1] if isinstance(model, Pipeline) else model
    scoring = check_scoring(scoring, numbers=not is_classifier(learner))
    X = columns_of_model(model, X)
    matrix, column, weights = check_data(learner, X, y, sample_weight, columns=False)
    together = _together(_names(model, X, feature_names, matrix.shape[1]), grouped)
    places = [columns for _, columns in together]
    seed = seed_of(random_state)
    chosen = draw_rows(matrix.shape[0], min(DONORS, matrix.shape[0]), stream(seed, "importance"))
    donors = to_dense(gather_finite(matrix, np.sort(chosen), client))
    numbers = da.arange(matrix.shape[0], chunks=(matrix.chunks[0],))
    counts = ModelCounts(model, scoring)
    slopes = InputSlopes.of(model, donors, places) if gradient else None
    permuted = _PermutedCounts(counts, donors, seed, n_repeats, places, slopes)
    arrays = [matrix, column, numbers, weights]
    with warnings.catch_warnings():
        # Blocks have no names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found, sums = count_blocks(
            arrays, permuted, permuted.merge, client, progress, "importances", group_size=1
        )
    scores = np.array([counts.evaluation(part)[scoring] for part in found])
    losses = scores[0] - scores[1:].reshape(len(places), n_repeats)
    means = sums[:-1] / sums[-1] if gradient else None
    return PermutationImportance(
        losses, [name for name, _ in together], scoring, float(scores[0]), means
    )


def _encoded(model: Any, X: Any, names: Any, groups: Any) -> tuple[Any, Any, Any, Any]:
    """Take the encoder off a model that begins with one: rows are encoded, and grouped by it."""
    encoder: Any = model[0] if isinstance(model, Pipeline) else None
    if not hasattr(encoder, "spec_of_table"):
        if groups is not None and not isinstance(groups, Mapping):
            raise ValueError(
                f"groups={groups!r} needs a pipeline that begins with a TableEncoder; of a "
                "store pass groups=rf.TableEncoder.of(dataset).sources() and "
                "feature_names=dataset.columns."
            )
        return model, X, names, groups or {}
    if not isinstance(X, np.ndarray | da.Array) and not is_sparse(X):
        X = encoder.transform(X)
    if groups is None or isinstance(groups, str):
        if groups not in (None, "source"):
            raise ValueError(
                f"groups={groups!r} must be 'source' or a mapping of names to columns."
            )
        groups = encoder.sources()
    return model[1:], X, _in_order(encoder.get_feature_names_out(), names), groups


def _together(names: list[str], groups: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
    """Return the places of the columns that are permuted together, in the order of the columns."""
    known = {name: place for place, name in enumerate(names)}
    group_of: dict[int, str] = {}
    for group, columns in groups.items():
        for column in [columns] if isinstance(columns, str) else columns:
            place = known.get(column) if isinstance(column, str) else int(column)
            if place is None or not 0 <= place < len(names):
                raise ValueError(f"groups: {group!r} has a column {column!r}, which X has not.")
            if group_of.setdefault(place, str(group)) != str(group):
                raise ValueError(
                    f"groups: column {column!r} is in {group_of[place]!r} and {group!r}."
                )
    found: dict[str | int, list[int]] = {}  # columns alone go by number: names may occur twice
    for place in range(len(names)):
        found.setdefault(group_of.get(place, place), []).append(place)
    return [(k if isinstance(k, str) else names[k], places) for k, places in found.items()]


def _names(model: Any, X: Any, given: Sequence[str] | None, p: int) -> list[str]:
    first = model[0] if isinstance(model, Pipeline) else model
    known = getattr(first, "columns_", getattr(first, "feature_names_in_", None))
    known = _in_order(known, given)
    names = [str(name) for name in known] if known is not None else [f"x{k}" for k in range(p)]
    if len(names) != p:
        raise ValueError(f"feature_names has {len(names)} names for {p} columns.")
    return names


def _in_order(known: Sequence[str] | None, given: Sequence[str] | None) -> Sequence[str] | None:
    """Return names that are given, in the order of the model where it knows the same ones.

    Rows are in that order, also those of a frame that had another.
    """
    if given is None or (known is not None and sorted(map(str, known)) == sorted(map(str, given))):
        return known
    return given


@dataclass(frozen=True)
class _PermutedCounts:
    """Counts a block as it is, and with the values of each group taken from other rows."""

    counts: ModelCounts
    donors: Array
    seed: int
    n_repeats: int
    groups: list[list[int]]
    slopes: InputSlopes | None

    def __call__(
        self, block: Any, y: Any, numbers: IntArray, weights: Array | None
    ) -> tuple[list[Any], Any]:
        X = dense(block).copy()
        sums = 0.0 if self.slopes is None else self.slopes.sums(X, weights)
        found = [self.counts.of(X, y, weights)]
        for group, columns in enumerate(self.groups):
            kept = X[:, columns]
            for repeat in range(self.n_repeats):
                words = np.random.SeedSequence([self.seed, group, repeat])
                one = int(words.generate_state(1, np.uint64)[0])
                others = hash_rows(numbers, one) % len(self.donors)
                X[:, columns] = self.donors[others[:, None], columns]
                found.append(self.counts.of(X, y, weights))
            X[:, columns] = kept
        return found, sums

    def merge(self, a: tuple[list[Any], Any], b: tuple[list[Any], Any]) -> tuple[list[Any], Any]:
        """Return the counts of both sets of rows."""
        return [self.counts.merge(x, y) for x, y in zip(a[0], b[0], strict=True)], a[1] + b[1]


@dataclass(frozen=True)
class InputSlopes:
    """The derivatives of the scores of learned features by their columns, in deviations of these.

    With ``f_k = sum_j A_kj s_j cos(w_j x + b_j) + c_k`` the derivative by ``x_i`` is
    ``- sum_j A_kj s_j sin(w_j x + b_j) w_ij``. Steps before only scale single columns; they change
    derivative and deviation by factors that cancel, so both are taken behind them.
    """

    scalers: list[Any]
    frequencies: Array
    phases: Array
    heads: Array
    """``A_kj s_j``, of shape (scores, features)"""
    deviations: Array
    groups: list[list[int]]

    @classmethod
    def of(cls, model: Any, rows: Array, groups: list[list[int]]) -> InputSlopes:
        """Take the derivatives from a fitted model, and deviations from some rows."""
        from rfcdask.linear.kernel.base import KernelModel

        *scalers, learner = (
            [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
        )
        scalers = [step for step in scalers if step not in (None, "passthrough")]
        if not isinstance(learner, KernelModel) or not all(
            isinstance(step, Standardizer | StandardScaler) for step in scalers
        ):
            raise ValueError(
                "gradient=True needs a KernelClassifier or KernelRegressor, behind none but "
                "Standardizer, StandardScaler and TableEncoder: pass gradient=False."
            )
        scales = np.sqrt(2 * learner.weights_ / len(learner.weights_))
        heads = np.atleast_2d(learner.coef_) * scales
        made = cls(scalers, learner.frequencies_, learner.phases_, heads, np.ones(1), groups)
        return replace(made, deviations=made.scaled(rows).std(0))

    def scaled(self, X: Array) -> Array:
        """Return rows as the learner is given them."""
        for step in self.scalers:
            X = step.transform(X)
        return np.asarray(X, np.float64)

    def sums(self, X: Array, weights: Array | None) -> Array:
        """Return the sum over rows of the size of the gradient by each group, and of weights."""
        weights = np.ones(len(X)) if weights is None else weights
        total = np.zeros(len(self.groups) + 1)
        for start in range(0, len(X), SLOPE_ROWS):
            squares = self._mean_squares(self.scaled(X[start : start + SLOPE_ROWS]))
            squares *= np.square(self.deviations)
            sizes = [np.sqrt(squares[:, columns].sum(1)) for columns in self.groups]
            total += np.array([*sizes, np.ones(len(squares))]) @ weights[start : start + SLOPE_ROWS]
        return total

    def _mean_squares(self, X: Array) -> Array:
        """Return the mean over scores of the squared derivatives, of shape (rows, columns)."""
        sines = np.sin(X @ self.frequencies + self.phases)
        squares = np.zeros_like(X)
        for head in self.heads:
            squares += np.square((sines * head) @ self.frequencies.T)
        return squares / len(self.heads)

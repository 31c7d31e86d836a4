"""Which columns a fitted model needs: what it loses when the values of one are mixed up."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from rfcdask.data.sample import gather_finite
from rfcdask.display.charts import Chart, bars
from rfcdask.display.html import Table, render_repr
from rfcdask.display.style import number
from rfcdask.evaluation.evaluate import ModelCounts
from rfcdask.evaluation.scorers import check_scoring
from rfcdask.execution.blocks import fold_blocks
from rfcdask.features.base import check_count
from rfcdask.kernels.arrays import Array, IntArray, RandomState, to_dense
from rfcdask.kernels.seeds import draw_rows, hash_rows, seed_of, stream
from rfcdask.linear.checks import dense
from rfcdask.linear.counts import FoldCounts
from rfcdask.linear.inputs import check_data

if TYPE_CHECKING:
    from distributed import Client

DONORS = 10_000
"""Rows in memory from which mixed-up values are taken."""
MOST_DRAWN = 25


@dataclass(frozen=True)
class PermutationImportance:
    """What a model loses without each column, as scikit-learn's function of that name returns it.

    Attributes
    ----------
    importances : array of shape (columns, n_repeats)
        The score on the rows as they are, less that with the values of a column mixed up.
    importances_mean, importances_std : arrays of shape (columns,)
    names : list of str
        Of the columns.
    scoring : str
    score : float
        On the rows as they are.
    """

    importances: Array
    names: list[str]
    scoring: str
    score: float

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
        mean, deviation = self.importances_mean, self.importances_std
        return Table(
            [
                {
                    "column": self.names[k],
                    "importance": float(mean[k]),
                    "deviation": float(deviation[k]),
                }
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
    client: Client | None = None,
    progress: Any = None,
) -> PermutationImportance:
    """Measure what a fitted model loses when the values of each column are mixed up.

    Blocks are read once and never joined: in the place of its own value a row is given that of one
    of 10,000 rows drawn from all, where scikit-learn's function of this name permutes the whole
    column. Which one depends on the seed and the number of the row, not on the chunks.

    Parameters
    ----------
    model : fitted classifier or regressor, or pipeline
        Of this package or of scikit-learn.
    X : array, CSR or dask array of shape (n, p)
        Rows that the model did not learn from. Each is predicted ``1 + p n_repeats`` times.
    y : array or dask array of shape (n,) or (n, targets)
    scoring : str, optional
        scikit-learn's name of a metric; "accuracy" or "r2" unless given.
    n_repeats : int
        How often each column is mixed up.
    random_state : int, RandomState, Generator or None
    sample_weight : array or dask array of shape (n,), optional
    feature_names : sequence of str, optional
        Names of the columns, where the model does not know them.
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
    learner = model[-1] if isinstance(model, Pipeline) else model
    scoring = check_scoring(scoring, numbers=not is_classifier(learner))
    matrix, column, weights = check_data(learner, X, y, sample_weight, columns=False)
    names = _names(model, X, feature_names, matrix.shape[1])
    seed = seed_of(random_state)
    chosen = draw_rows(matrix.shape[0], min(DONORS, matrix.shape[0]), stream(seed, "importance"))
    donors = to_dense(gather_finite(matrix, np.sort(chosen), client))
    numbers = da.arange(matrix.shape[0], chunks=(matrix.chunks[0],))
    counts = ModelCounts(model, scoring)
    count_block = partial(_count_mixed, counts, donors, seed, n_repeats)
    fold = FoldCounts(count_block, partial(_merge, counts), weights is not None)
    arrays = [matrix, column, numbers, weights]
    with warnings.catch_warnings():
        # Blocks have no names: their columns are those of X, by position.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        parts = fold_blocks(arrays, fold, None, client, "importances", progress=progress)
        found = reduce(partial(_merge, counts), (part for part in parts if part is not None))
    scores = np.array([counts.evaluation(part)[scoring] for part in found])
    losses = scores[0] - scores[1:].reshape(len(names), n_repeats)
    return PermutationImportance(losses, names, scoring, float(scores[0]))


def _names(model: Any, X: Any, given: Sequence[str] | None, p: int) -> list[str]:
    first = model[0] if isinstance(model, Pipeline) else model
    known = given if given is not None else getattr(first, "feature_names_in_", None)
    names = [str(name) for name in known] if known is not None else [f"x{k}" for k in range(p)]
    if len(names) != p:
        raise ValueError(f"feature_names has {len(names)} names for {p} columns.")
    return names


def _count_mixed(
    counts: ModelCounts,
    donors: Array,
    seed: int,
    n_repeats: int,
    block: Any,
    y: Any,
    numbers: IntArray,
    weights: Array | None,
) -> list[Any]:
    """Count a block as it is, and with the values of each column taken from other rows."""
    X = dense(block).copy()
    found = [counts.of(X, y, weights)]
    for column in range(X.shape[1]):
        kept = X[:, column].copy()
        for repeat in range(n_repeats):
            one = np.random.SeedSequence([seed, column, repeat]).generate_state(1, np.uint64)[0]
            X[:, column] = donors[hash_rows(numbers, int(one)) % len(donors), column]
            found.append(counts.of(X, y, weights))
        X[:, column] = kept
    return found


def _merge(counts: ModelCounts, a: list[Any], b: list[Any]) -> list[Any]:
    return [counts.merge(x, y) for x, y in zip(a, b, strict=True)]

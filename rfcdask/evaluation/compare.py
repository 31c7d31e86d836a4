"""Feature maps side by side: how near the kernel, how accurate, how fast, how large."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from rfcdask.data.sample import gather, gather_finite, pick, rows_and_labels
from rfcdask.display.charts import against_features
from rfcdask.display.drawing import legend
from rfcdask.display.html import Table, render_repr
from rfcdask.evaluation.evaluate import Judge
from rfcdask.evaluation.metrics import kernel_error
from rfcdask.execution.progress import track
from rfcdask.features import METHODS, NEIGHBOURS, check_methods, make_map
from rfcdask.features.base import LearnedFeatures, check_count
from rfcdask.kernels import get_kernel, resolve_gamma
from rfcdask.kernels.arrays import Array, DaskArray, Matrix, check_finite, feature_dtype, to_dense
from rfcdask.kernels.runtime import available_cpus
from rfcdask.kernels.seeds import draw_parts, draw_rows, seed_of, stream
from rfcdask.linear import SCORERS
from rfcdask.selection.columns import SharedCandidates

if TYPE_CHECKING:
    from distributed import Client

COSTS = ("fit_seconds", "microseconds_per_row", "model_bytes")
"""The columns that tell what a method costs."""
TIMED_ROWS, SLOW_ROWS, SLOW_SECONDS = 20_000, 2000, 0.02
"""Rows of which transforms are timed; of maps that take so long for few rows, these are enough."""
BOOSTED_ROWS, BOOSTED_BYTES = 100_000, 2**29
"""Most rows, and bytes of them, that gradient boosting learns from: it holds them in memory."""
FEW_VALUES = 4_000_000
"""Fewer values than this, rows times columns, are boosted by one thread."""


class Split(NamedTuple):
    """Rows to learn from, lazy where X is, and rows held out, in memory."""

    X: Any
    y: Any
    test: Matrix
    labels: Array


class Comparison(Table):
    """One row a method and number of features.

    Columns: ``method``, ``n_components``, ``kernel_error`` (relative, on rows held out; NaN of
    features that do not approximate the kernel, such as learned ones), ``accuracy`` for classes
    and ``r2`` for numbers (on rows held out), the metric that was asked for, ``fit_seconds`` (of
    the map; of "learned" with its linear model), ``microseconds_per_row`` (of `transform`) and
    ``model_bytes`` (what `transform` needs). Of several repeats they are means, and columns such as
    ``kernel_error_spread`` and ``accuracy_spread`` are standard deviations. "boosting" has no
    features, and ``n_components`` 0.
    """

    def plot(self, axes: Any = None, *, ax: Any = None, column: str | None = None) -> Any:
        """Draw kernel error and accuracy against the number of features; returns the axes.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, optional
            For kernel error and accuracy; new ones are made otherwise.
        ax : matplotlib axes, optional
            Draw one column only, here.
        column : str, optional
            Draw this column only, in `ax` or new axes; the score where only `ax` is given.
        """
        if ax is not None or column is not None:
            return self._plot_column(ax, column or self.scoring, named=True)
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
        for one, name in zip(axes, ("kernel_error", self.scoring), strict=True):
            self._plot_column(one, name, named=name == self.scoring)
        return axes

    @property
    def scoring(self) -> str:
        """The metric by which methods are judged."""
        scores = [name for name in self.columns if name in SCORERS]
        return scores[-1] if scores else "accuracy"

    def _plot_column(self, ax: Any, column: str, *, named: bool) -> Any:
        known = ["kernel_error", *(name for name in self.columns if name in SCORERS), *COSTS]
        if self.rows and column not in known:
            raise ValueError(f"column={column!r} must be one of {', '.join(known)}.")
        chart = against_features(self.rows, column)
        if chart is None:
            raise ValueError(f"There is nothing to draw: no row of the comparison has {column!r}.")
        drawn = chart.plot(ax)
        if named:
            legend(drawn)
        return drawn

    def _repr_html_(self) -> str:
        return render_repr(
            tables=[("", Table(self.rows))],
            methods=[row["method"] for row in self.rows],
            charts=[against_features(self.rows, name) for name in ("kernel_error", self.scoring)],
        )


def compare(
    X: Any,
    y: Any,
    methods: Sequence[str] | Mapping[str, Any] = tuple(METHODS),
    *,
    n_components: int | Sequence[int] = 300,
    kernel: str = "rbf",
    gamma: float | str = "scale",
    n_candidates: int = 5000,
    n_rows: int | None = 50_000,
    n_test: int = 10_000,
    model: Any = None,
    scoring: str | None = None,
    class_weight: Any = None,
    repeats: int = 1,
    random_state: Any = None,
    client: Any = None,
    progress: Any = None,
) -> Comparison:
    """Fit feature maps on the same rows and measure each on rows that none of them saw.

    Parameters
    ----------
    X : array, CSR or dask array of shape (n, p)
    y : array or dask array of shape (n,) or (n, targets)
        Labels, or numbers to predict.
    methods : sequence of str, or dict of name to unfitted feature map or kernel model
        Names are those of `METHODS`, and "boosting": scikit-learn's histogram gradient boosting,
        which learns from at most 100,000 rows, in memory. Maps of your own need a parameter
        ``n_components``, and keep their ``random_state`` in every repeat.
    n_components : int or sequence of int
        Numbers of features to try.
    kernel, gamma, n_candidates
        Given to all methods by name. A rule for gamma is resolved once, for all of them but
        "learned", which chooses its width by itself unless gamma is a number.
    n_rows : int or None
        Rows to learn from, drawn at random; None takes all that are not held out.
    n_test : int
        Rows held out, at most a fifth of all.
    model : classifier or regressor, optional
        What is trained on the features; unless given, ``RidgeClassifier()`` or ``Ridge()``, and of
        "learned" the linear model that its features were trained with.
    scoring : str, optional
        scikit-learn's name of the metric to judge by; "accuracy" for classes and "r2" for numbers
        unless given. Labels are numbers if some are no whole numbers, or if the metric is one
        for numbers.
    class_weight : dict, "balanced" or None
        Factors on the rows of each class, for all models that are made here.
    repeats : int
        How many times all is done anew, with other rows held out and other random features; the
        table then has means, and the spread of errors and accuracies.
    random_state : int, RandomState, Generator or None
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Returns
    -------
    Comparison

    Notes
    -----
    A map that looks at labels no longer approximates the kernel alone: judge "compressed-labels"
    by its accuracy, and "learned", which does not approximate the kernel at all, too. What these
    choose by themselves they choose on rows to learn from. Nyström maps store rows of the training
    data.
    """
    check_count("repeats", repeats)
    check_count("n_test", n_test, 2)
    if n_rows is not None:
        check_count("n_rows", n_rows, 2)
    if not isinstance(methods, Mapping):
        check_methods(methods if isinstance(methods, str) else {*methods} - {*NEIGHBOURS})
    known = get_kernel(kernel)
    X, y = rows_and_labels(X, y, several=True)
    if X.shape[0] < 10:
        raise ValueError(f"X has {X.shape[0]} rows; at least 10 are needed to hold some out.")
    if not isinstance(X, da.Array):
        check_finite(X)
    seed = seed_of(random_state)
    sizes = [*dict.fromkeys(int(size) for size in np.atleast_1d(n_components))]
    methods = methods if isinstance(methods, Mapping) else [*dict.fromkeys(methods)]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    total = int(repeats) * sum(1 if name in NEIGHBOURS else len(sizes) for name in methods)
    with track("comparing", total, "maps", progress=progress) as reporter:
        for again in range(seed, seed + repeats):
            data = _split(X, y, n_rows, n_test, again, client)
            judge = Judge.of(data.labels, scoring, class_weight)
            width, shared = resolve_gamma(gamma, known, data.test), SharedCandidates()
            for name in methods:
                reporter.note(name)
                own = isinstance(methods, Mapping)
                if name in NEIGHBOURS and not own:
                    row = measure_boosting(data, judge, again, client)
                    found.setdefault((name, 0), []).append(row)
                    reporter.advance()
                    continue
                if isinstance(methods, Mapping):
                    unfitted = methods[name]
                else:
                    unfitted = make_method(
                        name,
                        max(sizes),
                        judge,
                        kernel=kernel,
                        gamma=width,
                        given_gamma=gamma,
                        n_candidates=n_candidates,
                        random_state=again,
                    )
                for size, fitted, seconds in fit_sizes(unfitted, sizes, data, client, shared):
                    row = measure(name, size, fitted, seconds, model, data, judge, again, client)
                    found.setdefault((name, size), []).append(row)
                    reporter.advance()
    return Comparison([_together(rows) for rows in found.values()])


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row for all repeats of a method and size."""
    if len(rows) == 1:
        return rows[0]
    quality = ["kernel_error", *(name for name in rows[0] if name in SCORERS)]
    # All but the size of the model, which is the same in every repeat.
    means = {n: float(np.mean([row[n] for row in rows])) for n in (*quality, *COSTS[:-1])}
    spreads = {
        f"{name}_spread": float(np.std([row[name] for row in rows], ddof=1)) for name in quality
    }
    return rows[0] | means | spreads


def _split(X: Any, y: Any, n_rows: int | None, n_test: int, seed: int, client: Any) -> Split:
    n = X.shape[0]
    held = min(n_test, n // 5)
    kept = n - held if n_rows is None else min(n_rows, n - held)
    test, train = map(np.sort, draw_parts(n, (held, kept), stream(seed, "compare")))
    labels = np.asarray(gather(y, test, client))
    learn_from = _take(X, train)
    targets = _take(y, train) if isinstance(X, da.Array) else gather(y, train, client)
    if isinstance(learn_from, da.Array) and isinstance(targets, da.Array):
        targets = targets.rechunk({0: learn_from.chunks[0]})
    return Split(learn_from, targets, gather_finite(X, test, client), labels)


def _take(array: Any, rows: Array) -> Matrix | DaskArray:
    return pick(array, rows) if isinstance(array, da.Array) else array[rows]


def _fit(estimator: Any, X: Any, y: Any, client: Client | None) -> Any:
    """Fit an estimator; those of other packages know no client."""
    more = {"client": client} if has_fit_parameter(estimator, "client") else {}
    return estimator.fit(X, y, **more)


def fit_sizes(
    unfitted: Any,
    sizes: Sequence[int],
    data: Split,
    client: Client | None = None,
    shared: SharedCandidates | None = None,
) -> Iterator[tuple[int, Any, float]]:
    """Yield each size with a fitted copy of a map, and the seconds that took.

    Features that are selected are selected once for all sizes, which counts for each of them; what
    other maps selected by is taken from `shared`, and its time counts too.
    """
    if hasattr(unfitted, "fit_sizes"):
        maps = unfitted.fit_sizes(data.X, data.y, sizes=sizes, client=client, shared=shared)
        yield from ((size, *one) for size, one in zip(sizes, maps, strict=True))
        return
    for size in sizes:
        fitted = clone(unfitted).set_params(n_components=size)
        start = time.perf_counter()
        _fit(fitted, data.X, data.y, client)
        yield size, fitted, time.perf_counter() - start


def make_method(
    name: str,
    n_components: int,
    judge: Judge,
    *,
    gamma: float,
    given_gamma: float | str,
    **parameters: Any,
) -> Any:
    """Return the unfitted map of a method, or for "learned" the model that trains it.

    Parameters
    ----------
    name, n_components
        As in :func:`rfcdask.features.make_map`.
    judge : Judge
        Says what is to be predicted.
    gamma : float
        For maps that approximate the kernel.
    given_gamma : float or str
        What was asked for: only a number is used for "learned", which else tries several.
    **parameters
        As in ``make_map``.
    """
    if not METHODS[name].learns:
        return make_map(name, n_components, gamma=gamma, **parameters)
    return judge.kernel_model(
        n_components,
        kernel=parameters["kernel"],
        gamma="tune" if isinstance(given_gamma, str) else given_gamma,
        random_state=parameters["random_state"],
    )


def measure(
    name: str,
    size: int,
    fitted: Any,
    seconds: float,
    learner: Any,
    data: Split,
    judge: Judge,
    seed: int,
    client: Client | None = None,
    *,
    n_points: int = 10_000,
    more: tuple[Matrix, Array] | None = None,
) -> dict[str, Any]:
    """Return a row of :class:`rfcdask.Comparison` for a map fitted in so many seconds.

    Without a learner it is judged by its own linear model, if it has one, else by ridge. With
    `more`, further rows held out and their labels, the row has the score on those under the name
    ``confirmed_accuracy`` (or of another metric) and their number as ``confirmed_rows``.
    """
    feature_map = getattr(fitted, "features_", fitted)
    if feature_map is not fitted and learner is None:
        model, seen = fitted, lambda rows: rows
    else:
        model = judge.ridge() if learner is None else clone(learner)
        _fit(model, feature_map.transform(data.X), data.y, client)
        seen = feature_map.transform
        if learner is None and getattr(feature_map, "projection", None) == "gaussian":
            model, seen = _of_scores(model, feature_map)
    scores = judge.scores(model, seen(data.test), data.labels)
    confirmed: dict[str, Any] = {}
    if more is not None:
        again = judge.scores(model, seen(more[0]), more[1])[judge.scoring]
        confirmed = {f"confirmed_{judge.scoring}": again, "confirmed_rows": len(more[1])}
    error = float("nan")  # of what is no approximation of a kernel, or does not say of which
    approximates = not isinstance(feature_map, LearnedFeatures)
    if approximates and hasattr(feature_map, "kernel") and hasattr(feature_map, "gamma_"):
        error = kernel_error(feature_map, data.test, n_points=n_points, random_state=seed)
    return {
        "method": name,
        "n_components": size,
        "kernel_error": error,
        **scores,
        "fit_seconds": seconds,
        "microseconds_per_row": 1e6 * _seconds_per_row(feature_map.transform, data.test),
        "model_bytes": model_bytes(feature_map),
    } | confirmed


def _of_scores(model: Any, feature_map: Any) -> tuple[Any, Any]:
    """Return a linear model of its own scores, and what makes the scores of rows.

    The columns that thousands of candidates are projected to, most of the work, are never made.
    """
    coef, again = np.atleast_2d(model.coef_), copy(model)
    one_each = np.eye(len(coef))
    again.coef_ = one_each[0] if model.coef_.ndim == 1 else one_each
    again.n_features_in_ = len(coef)

    def scores(rows: Matrix) -> Array:
        evaluator = feature_map._evaluator(feature_dtype(rows.dtype))
        return np.asarray(evaluator.times(coef.T)(rows, n_threads=available_cpus()))

    return again, scores


def measure_boosting(
    data: Split, judge: Judge, seed: int, client: Client | None = None
) -> dict[str, Any]:
    """Return a row for gradient boosting on as many of the rows as may be held in memory."""
    n, p = data.X.shape
    most = min(n, BOOSTED_ROWS, max(BOOSTED_BYTES // (8 * p), 1000))
    rows = np.sort(draw_rows(n, most, stream(seed, "boosting")))
    X, y = to_dense(gather(data.X, rows, client)), np.asarray(gather(data.y, rows, client))
    model = judge.boosting(1 if y.ndim == 1 else y.shape[1], seed)
    start = time.perf_counter()
    # Threads that wait for each other cost more than they save on few rows, and many times as much
    # where other processes need the same cores.
    with threadpool_limits(1 if X.size < FEW_VALUES else None, user_api="openmp"):
        model.fit(X, y)
    seconds, test = time.perf_counter() - start, to_dense(data.test)
    return {
        "method": "boosting",
        "n_components": 0,
        "kernel_error": float("nan"),
        **judge.scores(model, test, data.labels),
        "fit_seconds": seconds,
        "microseconds_per_row": 1e6 * _seconds_per_row(model.predict, test),
        "model_bytes": None,
        "n_rows": most,
    }


def _seconds_per_row(function: Any, rows: Matrix) -> float:
    """Return the best of three calls of rows in memory, by the row."""

    def seconds(rows: Matrix) -> float:
        start = time.perf_counter()
        function(rows)
        return time.perf_counter() - start

    slow = seconds(rows[:SLOW_ROWS]) > SLOW_SECONDS
    rows = rows[: SLOW_ROWS if slow else TIMED_ROWS]
    times = [seconds(rows) for _ in range(3)]
    return float(min(times) / rows.shape[0])


def model_bytes(feature_map: Any) -> int:
    """Return the bytes of the arrays with which a fitted feature map transforms float32 rows."""
    if hasattr(feature_map, "_evaluator"):
        return _array_bytes(feature_map._evaluator(np.dtype(np.float32)))
    return sum(_array_bytes(v) for k, v in vars(feature_map).items() if k.endswith("_"))


def _array_bytes(held: Any) -> int:
    if isinstance(held, np.ndarray):
        return int(held.nbytes)
    if hasattr(held, "indptr"):
        return int(held.data.nbytes + held.indices.nbytes + held.indptr.nbytes)
    if is_dataclass(held):
        return sum(_array_bytes(getattr(held, field.name)) for field in fields(held))
    return 0

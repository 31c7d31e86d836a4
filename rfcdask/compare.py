"""Feature maps side by side: how near the kernel, how accurate, how fast, how large."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets

from rfcdask._types import Array, DaskArray, Matrix
from rfcdask.blocks import check_finite
from rfcdask.evaluate import kernel_error
from rfcdask.features import CompressedFeatures, JLFeatures, NystroemFeatures, RandomFeatures
from rfcdask.kernels import get_kernel, resolve_gamma
from rfcdask.linear import RidgeClassifier
from rfcdask.plots import plot_column, pyplot
from rfcdask.progress import track
from rfcdask.sample import draw_rows, gather, gather_finite, pick
from rfcdask.seeds import seed_of, stream
from rfcdask.svg.comparisons import against_features, method_legend
from rfcdask.svg.markup import Markup, el, join
from rfcdask.tables import Table

METHODS = (
    "random",
    "jl",
    "frank-wolfe",
    "giga",
    "compressed",
    "compressed-labels",
    "nystroem",
    "nystroem-rpcholesky",
)
"""All methods by name; "giga" and "frank-wolfe" are as in the paper, "compressed" is ours."""
MEASURED = ("kernel_error", "accuracy", "fit_seconds", "microseconds_per_row", "model_bytes")
"""The columns with figures."""
LABEL_WEIGHT = 0.3
"""How much "compressed-labels" looks at the labels."""
TIMED_ROWS = 20_000


class Comparison(Table):
    """One row a method and number of features.

    Columns: ``method``, ``n_components``, ``kernel_error`` (relative, on rows held out),
    ``accuracy`` (on rows held out), ``fit_seconds``, ``microseconds_per_row`` (of `transform`)
    and ``model_bytes`` (what `transform` needs).
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
            Draw this column only, in `ax` or new axes; "accuracy" where only `ax` is given.
        """
        if ax is not None or column is not None:
            drawn = self._plot_column(ax, column or "accuracy")
            drawn.legend(fontsize="small", frameon=False)
            return drawn
        if axes is None:
            _, axes = pyplot().subplots(1, 2, figsize=(9, 3.5), layout="constrained")
        for one, name in zip(axes, ("kernel_error", "accuracy"), strict=True):
            self._plot_column(one, name)
        axes[1].legend(fontsize="small", frameon=False)
        return axes

    def _plot_column(self, ax: Any, column: str) -> Any:
        if column not in MEASURED:
            raise ValueError(f"column={column!r} must be one of {', '.join(MEASURED)}.")
        label = column.replace("_", " ")
        return plot_column(ax, self.rows, column, label=label, log=column != "accuracy")

    def _repr_html_(self) -> str:
        if not self.rows:
            return super()._repr_html_()
        drawings = [against_features(self.rows, name) for name in ("kernel_error", "accuracy")]
        boxes = [el("div", drawing, style="flex:1 1 20em;max-width:28em") for drawing in drawings]
        row = el("div", *boxes, style="display:flex;flex-wrap:wrap;gap:1em")
        return join(Markup(super()._repr_html_()), method_legend(self.rows), row)


class Split(NamedTuple):
    """Rows to learn from, lazy where X is, and rows held out, in memory."""

    X: Any
    y: Any
    test: Matrix
    labels: Array


def compare(
    X: Any,
    y: Any,
    methods: Sequence[str] | Mapping[str, Any] = METHODS,
    *,
    n_components: int | Sequence[int] = 300,
    kernel: str = "rbf",
    gamma: float | str = "scale",
    n_candidates: int = 5000,
    n_rows: int | None = 50_000,
    n_test: int = 10_000,
    model: Any = None,
    random_state: Any = None,
    client: Any = None,
    progress: Any = None,
) -> Comparison:
    """Fit feature maps on the same rows and measure each on rows that none of them saw.

    Parameters
    ----------
    X : array or dask array of shape (n, p)
    y : array or dask array of shape (n,)
        Labels.
    methods : sequence of str, or dict of name to unfitted feature map
        Names are those of `METHODS`. Maps of your own need a parameter ``n_components``.
    n_components : int or sequence of int
        Numbers of features to try.
    kernel, gamma, n_candidates
        Given to all methods by name. A rule for gamma is resolved once, for all of them.
    n_rows : int or None
        Rows to learn from, drawn at random; None takes all that are not held out.
    n_test : int
        Rows held out, at most a fifth of all.
    model : classifier, optional
        What is trained on the features; ``RidgeClassifier()`` unless given.
    random_state : int, RandomState, Generator or None
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads.
    progress : bool, str or callable, optional
        See :func:`rfcdask.progress.track`.

    Returns
    -------
    Comparison

    Notes
    -----
    A map that looks at labels no longer approximates the kernel alone: judge "compressed-labels"
    by its accuracy. Nyström maps store rows of the training data.
    """
    seed = seed_of(random_state)
    data = _split(X, y, n_rows, n_test, seed, client)
    width = resolve_gamma(gamma, get_kernel(kernel), data.test)
    maps = make_maps(methods, kernel, width, n_candidates, seed)
    sizes = [n_components] if isinstance(n_components, (int, np.integer)) else list(n_components)
    learner = RidgeClassifier() if model is None else model
    rows = []
    with track("comparing", len(maps) * len(sizes), "maps", progress=progress) as reporter:
        for name, size, feature_map in _with_sizes(maps, sizes):
            reporter.note(f"{name}, {size} features")
            rows.append(_measure(name, size, feature_map, learner, data, seed, client))
            reporter.advance()
    return Comparison(rows)


def _split(X: Any, y: Any, n_rows: int | None, n_test: int, seed: int, client: Any) -> Split:
    n = X.shape[0]
    if len(y) != n:
        raise ValueError(f"y has {len(y)} rows and X has {n}: give one label for each row.")
    if n < 10:
        raise ValueError(f"X has {n} rows; at least 10 are needed to hold some out.")
    held = min(n_test, n // 5)
    kept = n - held if n_rows is None else min(n_rows, n - held)
    drawn = draw_rows(n, held + kept, stream(seed, "compare"))
    test, train = np.sort(drawn[:held]), np.sort(drawn[held:])
    y = y if isinstance(y, da.Array) else np.asarray(y)
    if not isinstance(X, da.Array):
        X = np.asarray(X)
        check_finite(X)
    labels = gather(y, test, client)
    check_classification_targets(labels)
    learn_from = _take(X, train)
    targets = _take(y, train)
    if isinstance(learn_from, da.Array) and isinstance(targets, da.Array):
        targets = targets.rechunk({0: learn_from.chunks[0]})
    return Split(learn_from, targets, gather_finite(X, test, client), labels)


def _take(array: Any, rows: Array) -> Array | DaskArray:
    taken: Array | DaskArray = pick(array, rows) if isinstance(array, da.Array) else array[rows]
    return taken


def make_maps(
    methods: Sequence[str] | Mapping[str, Any],
    kernel: str,
    gamma: float,
    n_candidates: int,
    seed: int,
    *,
    label_weight: float = LABEL_WEIGHT,
    **ours: Any,
) -> dict[str, Any]:
    """Return the unfitted maps of the names in `METHODS`, or those given, by name.

    `ours` are further parameters of "compressed" and "compressed-labels", such as ``refine``.
    """
    if isinstance(methods, Mapping):
        return dict(methods)
    unknown = [name for name in methods if name not in METHODS]
    if unknown or isinstance(methods, str):
        wrong = methods if isinstance(methods, str) else unknown[0]
        raise ValueError(f"methods: {wrong!r} is not in the list of {', '.join(METHODS)}.")
    common: dict[str, Any] = {"kernel": kernel, "gamma": gamma, "random_state": seed}
    many = common | {"n_candidates": n_candidates}
    made = {
        "random": lambda: RandomFeatures(**common),
        "jl": lambda: JLFeatures(300, **many),
        "frank-wolfe": lambda: CompressedFeatures.paper(300, solver="frank-wolfe", **many),
        "giga": lambda: CompressedFeatures.paper(300, solver="giga", **many),
        "compressed": lambda: CompressedFeatures(**many, **ours),
        "compressed-labels": lambda: CompressedFeatures(label_weight=label_weight, **many, **ours),
        "nystroem": lambda: NystroemFeatures(300, landmarks="uniform", **common),
        "nystroem-rpcholesky": lambda: NystroemFeatures(300, landmarks="rpcholesky", **common),
    }
    return {name: made[name]() for name in methods}


def _with_sizes(maps: dict[str, Any], sizes: list[int]) -> Iterator[tuple[str, int, Any]]:
    for name, feature_map in maps.items():
        for size in sizes:
            yield name, int(size), clone(feature_map).set_params(n_components=int(size))


def _measure(
    name: str, size: int, feature_map: Any, learner: Any, data: Split, seed: int, client: Any
) -> dict[str, Any]:
    start = time.perf_counter()
    feature_map.fit(data.X, data.y, client=client)
    seconds = time.perf_counter() - start
    return measure(name, size, feature_map, seconds, learner, data, seed, client)


def measure(
    name: str,
    size: int,
    feature_map: Any,
    seconds: float,
    learner: Any,
    data: Split,
    seed: int,
    client: Any = None,
    *,
    n_points: int = 10_000,
) -> dict[str, Any]:
    """Return one row of a :class:`Comparison` for a map that was fitted in so many seconds."""
    model = clone(learner).fit(feature_map.transform(data.X), data.y, client=client)
    right = np.asarray(model.predict(feature_map.transform(data.test))) == data.labels
    return {
        "method": name,
        "n_components": size,
        "kernel_error": kernel_error(feature_map, data.test, n_points=n_points, random_state=seed),
        "accuracy": float(np.mean(right)),
        "fit_seconds": seconds,
        "microseconds_per_row": 1e6 * _seconds_per_row(feature_map, data.test),
        "model_bytes": model_bytes(feature_map),
    }


def _seconds_per_row(feature_map: Any, rows: Matrix) -> float:
    """Return the best of three transforms of rows in memory, by the row."""
    rows = rows[:TIMED_ROWS]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        feature_map.transform(rows)
        times.append(time.perf_counter() - start)
    return float(min(times) / rows.shape[0])


def model_bytes(fitted: Any) -> int:
    """Return the bytes of the arrays with which a fitted feature map transforms float32 rows."""
    if hasattr(fitted, "_evaluator"):
        return _array_bytes(fitted._evaluator(np.dtype(np.float32)))
    return sum(_array_bytes(v) for k, v in vars(fitted).items() if k.endswith("_"))


def _array_bytes(held: Any) -> int:
    if isinstance(held, np.ndarray):
        return int(held.nbytes)
    if hasattr(held, "indptr"):
        return int(held.data.nbytes + held.indices.nbytes + held.indptr.nbytes)
    if is_dataclass(held):
        return sum(_array_bytes(getattr(held, field.name)) for field in fields(held))
    return 0

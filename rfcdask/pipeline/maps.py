"""The phases that look at samples: rows, kernel, selection, and all maps side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rfcdask.data.sample import gather, gather_finite
from rfcdask.evaluation.compare import (
    Split,
    fit_sizes,
    make_method,
    measure,
    measure_boosting,
)
from rfcdask.evaluation.tuning import tune
from rfcdask.execution.progress import track
from rfcdask.features.methods import METHODS, NEIGHBOURS
from rfcdask.kernels import get_kernel, resolve_gamma
from rfcdask.kernels.arrays import to_dense
from rfcdask.kernels.seeds import draw_rows, stream
from rfcdask.persist.models import load, save
from rfcdask.pipeline.context import Context, in_this_process
from rfcdask.pipeline.data import ERROR_ROWS
from rfcdask.pipeline.folder import plain, read_json, write_json

GAMMA_ROWS = 5000
TUNE_ROWS = 3000
CONFIRM_FROM = 2000
"""From so many held-out rows on, half of them confirm what the other half chose."""


def draw_sample(run: Context) -> dict[str, Any]:
    """Fetch rows to learn from, and rows held out where maps are compared, and keep them."""
    X, y = _drawn(run, run.train, run.used["compare_rows"], "train sample")
    # Neighbours on disk may be alike: in random order any beginning of the rows is a sample.
    order = stream(run.settings.random_state, "order").permutation(len(X))
    test: Any = None
    labels: Any = None
    if run.compares:
        test, labels = _drawn(run, run.test, run.used["compare_test_rows"], "test sample")
    run.keep_sample(Split(X[order], None if y is None else y[order], test, labels))
    return {"rows": len(X), "test_rows": 0 if labels is None else len(labels)}


def _drawn(run: Context, part: Any, size: int, purpose: str) -> tuple[Any, Any]:
    rows = np.sort(draw_rows(part.shape[0], size, stream(run.settings.random_state, purpose)))
    labels = None if part.y is None else gather(part.y, rows, run.client)
    return to_dense(gather_finite(part.X, rows, run.client)), labels


def settle_kernel(run: Context) -> dict[str, Any]:
    """Find the kernel's width by its rule, or by cross-validation on training rows."""
    rule, name = run.settings.gamma, run.settings.kernel
    if rule == "tune":
        return {"name": name, "gamma": _tuned_gamma(run), "rule": "tuned"}
    rows = run.sample.X[:GAMMA_ROWS]
    try:
        gamma = resolve_gamma(rule, get_kernel(name), rows)
    except ValueError:
        if rule != "median":
            raise
        # Half of all pairs are equal, as in tables of few switches; their spread still tells.
        rule, gamma = "scale", resolve_gamma("scale", get_kernel(name), rows)
    return {"name": name, "gamma": gamma, "rule": rule if isinstance(rule, str) else "given"}


def _tuned_gamma(run: Context) -> float:
    judge = run.judge
    without_proba = judge.scoring not in ("neg_log_loss", "neg_brier_score")
    n_rows = min(TUNE_ROWS, len(run.sample.X))
    found = tune(
        run.sample.X[:n_rows],
        run.sample.y[:n_rows],
        kernel=run.settings.kernel,
        n_rows=n_rows,
        strategy="halving",
        scoring=judge.scoring if without_proba else None,
        class_weight=judge.class_weight,
        random_state=run.settings.random_state,
        client=run.client,
    )
    return float(found.gamma)


def _fit_sizes(run: Context, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, Any, float]]:
    """Fit a map on the sample at each size; yields the size, the map and the seconds it took."""
    used, kernel = run.used, run.product("kernel")
    unfitted = make_method(
        method,
        max(sizes),
        run.judge,
        kernel=kernel["name"],
        gamma=kernel["gamma"],
        given_gamma=used["gamma"],
        n_candidates=used["n_candidates"],
        label_weight=used["label_weight"],
        random_state=run.settings.random_state,
        n_rows=used["n_rows"],
        refine=used["refine"],
    )
    with in_this_process():
        yield from fit_sizes(unfitted, sizes, run.sample)


def map_path(run: Context, method: str, size: int) -> Path:
    """Return where a fitted map that is needed again is kept."""
    return run.folder.maps / f"{method}-{size}"


def select(run: Context) -> dict[str, Any]:
    """Choose the features of the final model, or ours for a comparison, and keep their errors."""
    size, method = run.n_components, "compressed" if run.compares else run.used["method"]
    # One selection serves all sizes that are compared.
    compared = run.compares and method in run.used["methods"]
    sizes = run.used["sizes"] if compared else [size]
    took = {}
    with track("choosing features", None, "maps") as reporter:
        reporter.note(f"{size} of {run.used['n_candidates']}")
        for one, fitted, seconds in _fit_sizes(run, method, sizes):
            save(fitted, map_path(run, method, one), overwrite=True)
            took[str(one)] = seconds
            reporter.advance()
    found = load(map_path(run, method, size))
    product = {
        "method": method,
        "n_features": found._n_features_out,
        "seconds": took[str(size)],
        "seconds_by_size": took,
    }
    if not hasattr(found, "error_path_"):
        return product
    path = found.error_path_
    return product | {
        "n_candidates": run.used["n_candidates"],
        "n_rows": run.used["n_rows"],
        "sizes": path.sizes.tolist(),
        "sampled": path.sampled.tolist(),
        "heldout": path.heldout.tolist(),
        "chosen_size": len(found.weights_),
        "refined_heldout": found.heldout_error_ if found.refine_path_ is not None else None,
        "heldout_error": found.heldout_error_,
        "weights": found.weights_.tolist(),
    }


def compare_maps(run: Context) -> dict[str, Any]:
    """Fit every map at every size and measure it on rows held out; one file each."""
    methods, sizes = run.used["methods"], run.used["sizes"]
    others = [method for method in methods if method in NEIGHBOURS]
    methods = [method for method in methods if method in METHODS]
    with track("comparing", len(methods) * len(sizes) + len(others), "maps") as reporter:
        for method in methods:
            left = [size for size in sizes if not _row_path(run, method, size).is_file()]
            reporter.note(method)
            reporter.advance(len(sizes) - len(left))
            if left:
                run.log(f"compare: {method}, {', '.join(map(str, left))} features")
                for size, fitted, seconds in _fitted(run, method, left):
                    _measure(run, method, size, fitted, seconds)
                    reporter.advance()
        for method in others:
            if not _row_path(run, method, 0).is_file():
                reporter.note(method)
                row = measure_boosting(_chosen_by(run)[0], run.judge, run.settings.random_state)
                write_json(_row_path(run, method, 0), plain(row))
            reporter.advance()
    pairs = [(method, size) for method in methods for size in sizes]
    pairs += [(method, 0) for method in others]
    return {"rows": [read_json(_row_path(run, *pair)) for pair in pairs]}


def _chosen_by(run: Context) -> tuple[Split, Any]:
    """Return the sample, and further rows held out: what is recommended is chosen by one half."""
    data = run.sample
    if len(data.labels) < CONFIRM_FROM:
        return data, None
    more = (data.test[1::2], data.labels[1::2])
    return data._replace(test=data.test[::2], labels=data.labels[::2]), more


def _row_path(run: Context, method: str, size: int) -> Path:
    return run.folder.maps / f"{method}-{size}.json"


def _measure(run: Context, method: str, size: int, fitted: Any, seconds: float) -> None:
    """Measure a map, and keep it if the final model needs it."""
    if (method, size) == (run.used["method"], run.n_components) and not run.learns_features:
        save(fitted, map_path(run, method, size), overwrite=True)
    data, more = _chosen_by(run)
    with in_this_process():
        row = measure(
            method,
            size,
            fitted,
            seconds,
            None,
            data,
            run.judge,
            run.settings.random_state,
            n_points=ERROR_ROWS,
            more=more,
        )
    write_json(_row_path(run, method, size), plain(row) | {"test_rows": len(data.labels)})


def _fitted(run: Context, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, Any, float]]:
    """Yield the maps of a method; those that were chosen in the phase before are there."""
    chosen = run.product("select")
    known = chosen.get("seconds_by_size") or {str(run.n_components): chosen["seconds"]}
    there = [size for size in sizes if method == chosen["method"] and str(size) in known]
    for size in there:
        yield size, load(map_path(run, method, size)), known[str(size)]
    if left := [size for size in sizes if size not in there]:
        yield from _fit_sizes(run, method, left)

"""Cross-validation of many pairs of gamma and C, spread over threads or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import numpy as np
from dask.sizeof import sizeof

from rfcdask.evaluation.svm_folds import Sample, Trial, fold_accuracies, fold_of_rows
from rfcdask.execution.compute import RETRIES, cluster_errors, current_client, fetch
from rfcdask.execution.progress import track
from rfcdask.kernels.threads import available_cpus, one_blas_thread
from rfcdask.kernels.types import Array

Pair = tuple[float, float]


def rungs(n: int, strategy: str, folds: int) -> list[tuple[int, int]]:
    """Return how many rows, and by what the number of pairs is divided, in each round."""
    if strategy == "grid" or n < 18 * folds:
        return [(n, 1)]
    return [(n // 9, 1), (n // 3, 3), (n, 9)]


def search(
    sample: Sample,
    kernel: str,
    gammas: list[float],
    Cs: list[float],
    rounds: list[tuple[int, int]],
    folds: int,
    seed: int,
    client: Any,
    progress: Any,
) -> list[dict[str, Any]]:
    """Return a row for each pair of gamma and C in each round."""
    alive = [(gamma, C) for gamma in gammas for C in Cs]
    tried: list[dict[str, Any]] = []
    for n, divisor in rounds:
        alive = _best(tried, alive, -(-len(gammas) * len(Cs) // divisor))
        part = Sample(sample.rows[:n], sample.codes[:n])
        trials = [
            Trial(kernel, gamma, tuple(C for g, C in alive if g == gamma), fold)
            for gamma in dict.fromkeys(g for g, _ in alive)
            for fold in range(folds)
        ]
        found: dict[Pair, list[float]] = {pair: [] for pair in alive}
        parts = fold_of_rows(part.codes, folds, seed)
        with track("tuning", len(trials), "folds", progress=progress) as reporter:
            for trial, accuracies in zip(trials, _run(part, parts, trials, client), strict=True):
                for C, accuracy in zip(trial.Cs, accuracies, strict=True):
                    found[(trial.gamma, C)].append(accuracy)
                reporter.advance()
        tried += [_row(gamma, C, n, found[(gamma, C)]) for gamma, C in alive]
    return tried


def _best(tried: list[dict[str, Any]], alive: list[Pair], count: int) -> list[Pair]:
    """Return the best pairs of the last round, in the order of the grid."""
    if not tried:
        return alive
    last = sorted(tried[-len(alive) :], key=lambda row: -row["accuracy"])
    kept = {(row["gamma"], row["C"]) for row in last[:count]}
    return [pair for pair in alive if pair in kept]


def _row(gamma: float, C: float, n: int, accuracies: list[float]) -> dict[str, Any]:
    mean, deviation = float(np.mean(accuracies)), float(np.std(accuracies))
    return {"gamma": gamma, "C": C, "n_rows": n, "accuracy": mean, "deviation": deviation}


def _run(
    sample: Sample, parts: Array, trials: Iterable[Trial], client: Any
) -> Iterator[tuple[float, ...]]:
    """Yield the accuracies of each trial, in order, computed side by side."""
    chosen = current_client(client)
    if chosen is None:
        with one_blas_thread(), ThreadPoolExecutor(available_cpus()) as pool:
            yield from pool.map(lambda trial: fold_accuracies(sample, parts, trial), trials)
        return
    # The sample is one task of its own: it is sent once, and again should its worker die.
    quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    with cluster_errors(chosen), quiet:
        held = chosen.submit(_hold, sample, parts, pure=False, retries=RETRIES)
        futures = [
            chosen.submit(_on_worker, held, trial, pure=False, retries=RETRIES) for trial in trials
        ]
    for future in futures:
        yield fetch(future, chosen, sizeof(sample.rows))


def _hold(sample: Sample, parts: Array) -> tuple[Sample, Array]:
    return sample, parts


def _on_worker(held: tuple[Sample, Array], trial: Trial) -> tuple[float, ...]:
    with one_blas_thread():
        return fold_accuracies(*held, trial)

"""Cross-validation of many pairs of gamma and C, spread over threads or a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.sizeof import sizeof

from rfcdask.evaluation.svm_folds import Sample, Trial, fold_accuracies, fold_of_rows
from rfcdask.execution.executor import map_tasks

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
        results = map_tasks(
            fold_accuracies,
            trials,
            client,
            common=(part, parts),
            label="tuning",
            unit="folds",
            progress=progress,
            block_bytes=sizeof(part.rows),
        )
        for trial, accuracies in zip(trials, results, strict=True):
            for C, accuracy in zip(trial.Cs, accuracies, strict=True):
                found[(trial.gamma, C)].append(accuracy)
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

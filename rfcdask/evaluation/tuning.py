"""Choosing the kernel's width and the penalty on a sample, with the exact kernel.

The protocol of the paper: an exact kernel support vector machine on 10,000 random rows, 5-fold
cross-validation over gamma and C. The best gamma goes into the feature map, the best C into the
linear model, whose penalty is ``alpha = 1 / (C n_rows)``. For numbers it is exact kernel ridge
regression, with the penalty ``1 / C`` beside the sum of squares, which is the same alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from rfcdask.data.sample import gather, gather_finite, rows_and_labels
from rfcdask.display import number, share
from rfcdask.display.drawing import Cells, Chart, heat_map
from rfcdask.display.html import Table, render_repr
from rfcdask.evaluation.evaluate import Judge, has_numbers, score_in_memory
from rfcdask.execution.executor import map_tasks
from rfcdask.features import CompressedFeatures
from rfcdask.kernels import get_kernel, resolve_gamma
from rfcdask.kernels.arrays import Array, IntArray, Matrix, missing_labels
from rfcdask.kernels.seeds import draw_rows, seed_of, stream
from rfcdask.linear import SGDClassifier, SGDRegressor, check_scoring
from rfcdask.linear.inputs import ClassLabels

GAMMA_FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
"""The default grid of gamma, in units of ``gamma="scale"``."""
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # the default grid of C
HALVING = (9, 3, 1)
"""By what the rows are divided in each round of halving; the pairs are in reverse."""
LABEL_WEIGHTS = (0.0, 0.1, 0.3, 1.0)
"""The default choice of ``label_weight`` where one is asked for."""

Fold = tuple[IntArray, IntArray]  # the numbers of the rows to learn from, and of those to test on


@dataclass(frozen=True)
class TuneResult:
    """The best settings, and everything that was tried.

    Attributes
    ----------
    kernel : str
    gamma, C : float
        The best pair by the mean score over folds; among equals the smoothest model.
    alpha : float
        The penalty of :class:`rfcdask.SGDClassifier` that matches C on all rows of X.
    scoring : str
        The metric, by scikit-learn's name.
    score : float
        Its mean over folds with the best pair.
    label_weight : float or None
        The best of those tried, for :class:`rfcdask.CompressedFeatures`.
    table : Table
        One row for each pair and number of rows: mean and standard deviation over folds.
    label_table : Table or None
        Score of a ridge model on rows held out, for each label weight.
    n_rows : int
        Rows of the sample.
    seed : int
    """

    kernel: str
    gamma: float
    C: float
    alpha: float
    scoring: str
    score: float
    label_weight: float | None
    table: Table
    label_table: Table | None
    n_rows: int
    seed: int

    def __repr__(self) -> str:
        weight = "" if self.label_weight is None else f", label_weight={self.label_weight:g}"
        return (
            f"TuneResult(kernel={self.kernel!r}, gamma={self.gamma:.4g}, C={self.C:g}, "
            f"alpha={self.alpha:.3g}{weight}, {self.scoring}={self.score:.4f} "
            f"on {self.n_rows:,} rows)"
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean accuracy of every gamma and C, from the most rows each was tried on.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        return self._chart().plot(ax)

    @property
    def accuracy(self) -> float | None:
        """The score, where it is the accuracy."""
        return self.score if self.scoring == "accuracy" else None

    def _chart(self) -> Chart:
        # Of a pair that was tried several times the last stays, which had the most rows.
        order = sorted(self.table, key=lambda row: row["n_rows"])
        found = {(row["C"], row["gamma"]): row[self.scoring] for row in order}
        Cs, gammas = (sorted(set(side)) for side in zip(*found, strict=True))
        grid = [[(C, gamma) for gamma in gammas] for C in Cs]
        is_share = min(found.values()) >= 0 and self.scoring != "r2"
        factor, unit = (100, " in percent") if is_share else (1, "")
        show = (lambda v: share(v, 2)) if is_share else number
        name = self.scoring.replace("_", " ")
        cells = Cells(
            [[found.get(pair, math.nan) for pair in row] for row in grid],
            [f"{C:g}" for C in Cs],
            [f"{gamma:.3g}" for gamma in gammas],
            [
                [_cell(factor * found[pair], is_share) if pair in found else "" for pair in row]
                for row in grid
            ],
            [
                [f"C {C:g}, gamma {number(g)}: {show(found.get((C, g)))}" for C, g in row]
                for row in grid
            ],
            (Cs.index(self.C), gammas.index(self.gamma)),
        )
        label = f"Mean {name}{unit} for each C and gamma; best {show(max(found.values()))}"
        return heat_map(label, cells, "C", f"gamma, mean {name}{unit}", tall=0.8)

    def _repr_html_(self) -> str:
        tables = [("Everything that was tried", self.table)]
        if self.label_table is not None:
            tables.append(("Label weights", self.label_table))
        return render_repr(code=repr(self), charts=[self._chart()], tables=tables)

    def pipeline(self, n_components: int = 500) -> Any:
        """Return an unfitted feature map and linear model with the settings found."""
        features = CompressedFeatures(
            n_components,
            kernel=self.kernel,
            gamma=self.gamma,
            label_weight=self.label_weight or 0.0,
            random_state=self.seed,
        )
        model = SGDRegressor if has_numbers(np.zeros(0), self.scoring) else SGDClassifier
        return make_pipeline(features, model(alpha=self.alpha, random_state=self.seed))


def tune(
    X: Any,
    y: Any,
    *,
    kernel: str = "rbf",
    gammas: Sequence[float] | None = None,
    Cs: Sequence[float] | None = None,
    n_rows: int = 10_000,
    folds: int = 5,
    strategy: str = "grid",
    label_weights: Sequence[float] | bool | None = None,
    n_components: int = 300,
    scoring: str | None = None,
    class_weight: Any = None,
    random_state: Any = None,
    client: Any = None,
    progress: Any = None,
) -> TuneResult:
    """Choose gamma and C by cross-validation of exact kernel machines on a sample.

    Parameters
    ----------
    X : array, CSR or dask array of shape (n, p)
        Of which a sample is read.
    y : array or dask array of shape (n,) or (n, targets)
        The classes of the rows, or numbers to predict.
    kernel : str
        A kernel of :mod:`rfcdask.kernels`.
    gammas, Cs : sequences of float, optional
        The grid. By default seven gammas from 1/16 to 4 times ``gamma="scale"`` and C from 0.1 to
        1,000.
    n_rows : int
        Rows to sample.
    folds : int
        Parts of the cross-validation.
    strategy : {"grid", "halving"}
        Try every pair on all sampled rows, or all pairs on a ninth, the best third of them on a
        third, and the best ninth on all rows.
    label_weights : sequence of float or True, optional
        Also choose ``label_weight`` of :class:`rfcdask.CompressedFeatures`, by the score of a
        ridge model on a fifth of the sample. True tries 0, 0.1, 0.3 and 1.
    n_components : int
        Features of the maps with which label weights are tried.
    scoring : str, optional
        What is to be large, by scikit-learn's name, such as "balanced_accuracy" or "roc_auc"; by
        default "accuracy" for classes, and "r2" for numbers, which labels are if some are no whole
        numbers, or if the metric is one for numbers.
    class_weight : dict, "balanced" or None
        Factors on the penalty C of the rows of each class.
    random_state : int, RandomState, Generator or None
        Draws the sample and the folds.
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Returns
    -------
    TuneResult

    Notes
    -----
    Each gamma is one task. It holds the kernel matrix of ``n_rows^2`` double precision numbers and
    the part of it that a fold learns from: about 1.5 GB at 10,000 rows, for each thread or worker.
    """
    if strategy not in ("grid", "halving"):
        raise ValueError(f"strategy={strategy!r} must be 'grid' or 'halving'.")
    if folds < 2 or n_rows < 2 * folds:
        raise ValueError(f"folds={folds} needs at least 2 folds of 2 rows; n_rows={n_rows}.")
    seed = seed_of(random_state)
    sample = _take_sample(X, y, n_rows, seed, client, scoring)
    exact = "exact machines"
    scoring = check_scoring(scoring, numbers=sample.numbers, without_probabilities=exact)
    if sample.numbers and class_weight is not None:
        raise ValueError(f"class_weight={class_weight!r} is for classes, and y holds numbers.")
    weights_of_classes = sample.weights_of(class_weight)
    gammas, Cs = _grid(gammas, Cs, kernel, sample.rows)
    rounds = HALVING if strategy == "halving" and len(sample.codes) >= 18 * folds else (1,)
    judge = Judge(sample.numbers, scoring, weights_of_classes)
    tried = _search(sample, kernel, gammas, Cs, folds, rounds, judge, seed, client, progress)
    # Of equals the smaller C and gamma: the smoother model.
    last = [row for row in tried if row["n_rows"] == len(sample.codes)]
    best = max(last, key=lambda row: (row[scoring], -row["C"], -row["gamma"]))
    label_table, weight = None, None
    if label_weights is not None and label_weights is not False:
        weights = LABEL_WEIGHTS if label_weights is True else tuple(label_weights)
        label_table = _try_label_weights(
            sample, kernel, best["gamma"], weights, n_components, judge, seed
        )
        weight = max(label_table, key=lambda row: row[scoring])["label_weight"]
    return TuneResult(
        kernel=kernel,
        gamma=best["gamma"],
        C=best["C"],
        alpha=1.0 / (best["C"] * X.shape[0]),
        scoring=scoring,
        score=best[scoring],
        label_weight=weight,
        table=Table(tried),
        label_table=label_table,
        n_rows=len(sample.codes),
        seed=seed,
    )


class EncodedSample(NamedTuple):
    """Rows in memory and the number of each one's class, or what is to be predicted of it."""

    rows: Matrix
    codes: Array
    classes: Array | None

    @property
    def numbers(self) -> bool:
        """Whether there are numbers to predict."""
        return self.classes is None

    def weights_of(self, class_weight: Any) -> Any:
        """Return `class_weight` by the numbers of the classes."""
        if self.classes is None or not isinstance(class_weight, dict):
            return class_weight
        strange = [label for label in class_weight if label not in self.classes]
        if strange:
            raise ValueError(f"class_weight has {strange[0]!r}, which is no class of the sample.")
        known = dict.fromkeys(self.classes.tolist(), 1.0) | class_weight
        return dict(enumerate(ClassLabels.known(self.classes).weights(known).tolist()))


def _take_sample(
    X: Any, y: Any, n_rows: int, seed: int, client: Any, scoring: str | None
) -> EncodedSample:
    X, y = rows_and_labels(X, y, several=True)
    rows = draw_rows(X.shape[0], min(n_rows, X.shape[0]), stream(seed, "tune"))
    labels = np.asarray(gather(y, rows, client))
    missing = missing_labels(labels)
    if missing.any():
        where = int(rows[np.argmax(missing.reshape(len(rows), -1).any(1))])
        raise ValueError(
            f"y has no label in row {where} (None, NaN or infinity); drop the rows without a label"
            " first."
        )
    classes, codes = None, labels
    if not has_numbers(labels, scoring):
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds only one class ({classes.tolist()[0]!r}) in the sample.")
        if len(classes) > len(rows) // 2:
            raise ValueError(
                "y has nearly as many values as rows; pass scoring='r2' if they are numbers to "
                "predict and no labels of classes."
            )
    found = gather_finite(X, rows, client)
    found = found if found.dtype == np.float32 else found.astype(np.float64)
    return EncodedSample(found, codes, classes)


def _cell(score: float, is_share: bool) -> str:
    return f"{score:.1f}" if is_share else f"{score:.3g}"


def _grid(
    gammas: Sequence[float] | None, Cs: Sequence[float] | None, kernel: str, rows: Matrix
) -> tuple[list[float], list[float]]:
    if gammas is None:
        scale = resolve_gamma("scale", get_kernel(kernel), rows)
        gammas = [scale * factor for factor in GAMMA_FACTORS]
    for name, values in (("gammas", gammas), ("Cs", Cs := PENALTIES if Cs is None else Cs)):
        if not len(values) or not all(np.isfinite(v) and v > 0 for v in values):
            raise ValueError(f"{name}={list(values)!r} must be positive numbers.")
    # Once each: scores are put back to their pairs by gamma.
    return [*dict.fromkeys(map(float, gammas))], [*dict.fromkeys(map(float, Cs))]


def _search(
    sample: EncodedSample,
    kernel: str,
    gammas: list[float],
    Cs: list[float],
    folds: int,
    rounds: tuple[int, ...],
    judge: Judge,
    seed: int,
    client: Any,
    progress: Any,
) -> list[dict[str, Any]]:
    """Return a row for each pair of gamma and C in each round, by gamma and then by C."""
    pairs = list(product(gammas, Cs))
    tried: list[dict[str, Any]] = []
    for divisor, kept in zip(rounds, reversed(rounds), strict=True):
        if tried:
            last = sorted(tried[-len(pairs) :], key=lambda row: -row[judge.scoring])
            best = {(row["gamma"], row["C"]) for row in last[: -(-len(gammas) * len(Cs) // kept)]}
            pairs = [pair for pair in pairs if pair in best]
        n = len(sample.codes) // divisor
        strata = np.zeros(n, np.int64) if sample.numbers else sample.codes[:n]
        part = EncodedSample(sample.rows[:n], sample.codes[:n], sample.classes)
        grid = {gamma: [C for g, C in pairs if g == gamma] for gamma, _ in pairs}
        found = map_tasks(
            _cross_validate,
            list(grid.items()),
            client,
            common=(part, make_folds(strata, folds, seed), kernel, judge),
            label="tuning",
            unit="gammas",
            progress=progress,
            block_bytes=8 * n * n,
        )
        scores = np.concatenate(list(found))
        tried += [
            {"gamma": gamma, "C": C, "n_rows": n, judge.scoring: mean, "deviation": deviation}
            for (gamma, C), mean, deviation in zip(
                pairs, scores.mean(axis=1).tolist(), scores.std(axis=1).tolist(), strict=True
            )
        ]
    return tried


def make_folds(codes: IntArray, folds: int, seed: int) -> list[Fold]:
    """Return the folds of a cross-validation, with the classes spread evenly."""
    enough = np.bincount(codes).min() >= folds
    kind = StratifiedKFold if enough else KFold  # a class with fewer rows cannot be in all folds
    return list(kind(folds, shuffle=True, random_state=seed % 2**32).split(codes, codes))


def _cross_validate(
    sample: EncodedSample,
    folds: list[Fold],
    kernel: str,
    judge: Judge,
    trial: tuple[float, list[float]],
) -> Array:
    """Return the score of each C (rows) on each fold (columns) with one gamma.

    The kernel matrix is computed once and given to the solver as it is, which makes a fit take
    a second or two at 8,000 rows.
    """
    (rows, codes, _), (gamma, Cs) = sample, trial
    K = np.asarray(get_kernel(kernel).exact(rows, rows, gamma), np.float64)
    scores = np.zeros((len(Cs), len(folds)))
    for k, (train, test) in enumerate(folds):
        inside, across = K[np.ix_(train, train)], K[np.ix_(test, train)]
        for i, C in enumerate(Cs):
            model = _machine(sample, C, codes[train], judge)
            model.fit(inside, codes[train])
            scores[i, k] = score_in_memory(model, across, codes[test], judge.scoring)
    return scores


def _machine(sample: EncodedSample, C: float, codes: Array, judge: Judge) -> Any:
    if sample.numbers:  # kernel ridge has no intercept
        ridge = KernelRidge(alpha=1.0 / C, kernel="precomputed")
        return TransformedTargetRegressor(ridge, transformer=StandardScaler(with_std=False))
    if len(np.unique(codes)) < 2:  # no machine is trained: that class is predicted
        return DummyClassifier()
    return SVC(C=C, kernel="precomputed", class_weight=judge.class_weight)


def _try_label_weights(
    sample: EncodedSample,
    kernel: str,
    gamma: float,
    weights: Sequence[float],
    n_components: int,
    judge: Judge,
    seed: int,
) -> Table:
    """Return the score of ridge on a map fitted with each label weight, on a fifth of the rows.

    The sample is in random order: its last rows are a sample too.
    """
    rows, codes, _ = sample
    cut = len(codes) * 4 // 5
    table = []
    for weight in weights:
        features = CompressedFeatures(
            n_components, kernel=kernel, gamma=gamma, label_weight=weight, random_state=seed
        )
        ridge = judge.ridge()
        model = make_pipeline(features, ridge).fit(rows[:cut], codes[:cut])
        score = score_in_memory(model, rows[cut:], codes[cut:], judge.scoring)
        table.append({"label_weight": float(weight), judge.scoring: score})
    return Table(table)

"""The numerical side of kernel models, against finite differences and convex solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from rfcdask.kernels import get_kernel
from rfcdask.kernels.runtime import task_threads
from rfcdask.linear.kernel.gradient import (
    Buffers,
    InputScaling,
    Parameters,
    ScaledRows,
    Trial,
    batch_gradient,
    choose_width,
    median_gamma,
    scaled_gamma,
)
from rfcdask.linear.kernel.optimize import (
    DivergedError,
    Objective,
    OptimizerConfig,
    TrainingRows,
    input_scaling,
    judge,
    train_in_memory,
    train_rows,
)
from rfcdask.linear.sgd.losses import LOG, SOFTMAX, SQUARED, SQUARED_HINGE

P, J, N = 5, 7, 40


def some_rows(outputs: int, loss: int, seed: int = 0) -> TrainingRows:
    rng = np.random.default_rng(seed)
    X = rng.normal(2.0, 1.5, size=(N, P))
    weights = rng.random(N).astype(np.float32) + 0.5
    if loss == SQUARED:
        return TrainingRows(X, rng.normal(size=(N, outputs)), weights)
    return TrainingRows(X, rng.integers(0, max(outputs, 2), N), weights)


def some_training(
    outputs: int, loss: int, alphas: tuple[float, ...], **more: Any
) -> OptimizerConfig:
    rng = np.random.default_rng(1)
    frequencies = rng.normal(size=(P, J)) * 0.7
    scaling = InputScaling(np.full(P, 1.9), 0.1)
    settings = {"batch": N, "n_steps": 10} | more
    training = OptimizerConfig(
        Objective(loss, outputs, alphas), scaling, rng.random(J) + 0.5, **settings
    )
    assert frequencies.shape == (P, J)
    return training


def random_parameters(outputs: int, n_heads: int) -> Parameters:
    rng = np.random.default_rng(2)
    shapes = [(P, J), (J,), (J, outputs * n_heads), (outputs * n_heads,)]
    return Parameters(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def exact_loss(training: OptimizerConfig, parameters: Parameters, data: TrainingRows) -> float:
    """Return the mean loss over heads in float64, written down from the formulas."""
    origin, unit = training.scaling
    frequencies, phases, heads, intercepts = (np.asarray(v, float) for v in parameters)
    X = np.asarray(data.X.todense()) if sp.issparse(data.X) else data.X
    Z = training.scales * np.cos(2 * np.pi * ((X - origin) * unit @ frequencies + phases))
    F = Z @ heads + intercepts
    k, total = training.objective.n_outputs, 0.0
    for start in range(0, F.shape[1], k):
        f = F[:, start : start + k]
        if training.objective.loss == SQUARED:
            losses = 0.5 * ((f - data.targets) ** 2).sum(1)
        elif training.objective.loss == SOFTMAX:
            top = f.max(1, keepdims=True)
            losses = np.log(np.exp(f - top).sum(1)) + top[:, 0] - f[np.arange(N), data.targets]
        else:
            signs = np.where(data.targets[:, None] == (np.arange(k) if k > 1 else 1), 1, -1)
            if training.objective.loss == LOG:
                losses = np.logaddexp(0, -signs * f).sum(1)
            else:
                losses = (np.maximum(1 - signs * f, 0) ** 2).sum(1)
        total += float(data.weights @ losses)
    return total / (N * (F.shape[1] // k))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("loss", "outputs"), [(SOFTMAX, 3), (LOG, 1), (SQUARED_HINGE, 3), (SQUARED, 2)]
)
def test_gradient_is_that_of_the_formulas(loss: int, outputs: int, sparse: bool) -> None:
    training = some_training(outputs, loss, (0.0, 0.0))
    data, parameters = some_rows(outputs, loss), random_parameters(outputs, 2)
    X = sp.csr_array(data.X.astype(np.float32)) if sparse else data.X
    rows = ScaledRows.of(X, data.as_targets(), training.scaling)
    buffers = Buffers.make(N, parameters)
    value = batch_gradient(rows, 0, N, parameters, training.steps(), buffers) / N
    found = buffers.gradient
    assert value == pytest.approx(exact_loss(training, parameters, data), rel=1e-5)
    rng = np.random.default_rng(3)
    for name in Parameters._fields:
        direction = rng.normal(size=getattr(parameters, name).shape)
        values = np.asarray(getattr(parameters, name), float)
        up, down = (
            exact_loss(
                training, parameters._replace(**{name: values + e * direction}), data
            )
            for e in (1e-5, -1e-5)
        )  # fmt: skip
        slope = float((getattr(found, name) * direction).sum())
        if name in ("heads", "intercepts"):  # of each head's own loss, not of the mean
            slope /= 2
        assert slope == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("sparse", [False, True])
def test_training_does_not_depend_on_threads(sparse: bool) -> None:
    training = some_training(3, SOFTMAX, (0.0,), batch=8)
    parts = [some_rows(3, SOFTMAX, seed) for seed in range(3)]
    if sparse:
        parts = [part._replace(X=sp.csr_array(part.X.astype(np.float32))) for part in parts]
    start = training.start(np.random.default_rng(5).normal(size=(P, J)), np.zeros(J))
    rng = np.random.default_rng(6)
    which, rows = rng.integers(0, 3, 5000), rng.integers(0, N, 5000)
    found = []
    for threads in (1, 3):
        with task_threads(threads):
            found.append(train_rows(start, training, parts, which, rows).parameters)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def fitted_head(loss: int, outputs: int, targets: Any, alpha: float) -> Any:
    """Train heads only, on 15 fixed features of 3,000 rows; return features, coef, intercept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, P)).astype(np.float32)
    frequencies, phases = rng.normal(size=(P, 15)), rng.uniform(0, 2 * np.pi, 15)
    data = TrainingRows(X, targets(X, rng), np.ones(3000, np.float32))
    objective = Objective(loss, outputs, (alpha,))
    scales = np.full(15, np.sqrt(2 / 15))
    n_steps = 30 * 150
    scaling = input_scaling(X, frequencies)
    training = OptimizerConfig(objective, scaling, scales, 20, n_steps, learn_features=False)
    state = training.start(frequencies, phases)
    state = train_in_memory(training, state, data, 30 * 3000, np.random.default_rng(1))
    Z = scales * np.cos(X @ frequencies + phases)
    assert np.allclose(training.frequencies(state.parameters)[0], frequencies, atol=1e-5)
    return Z, data.targets, *training.head(state.parameters)


def test_fixed_features_with_log_loss_reach_sklearn() -> None:
    def labels(X: Any, rng: Any) -> Any:
        score = np.sin(2 * X[:, 0]) + X[:, 1] + rng.logistic(size=len(X)) * 0.5
        return np.digitize(score, [-0.5, 0.7])

    Z, codes, coef, intercept = fitted_head(SOFTMAX, 3, labels, 1e-3)
    exact = LogisticRegression(C=1 / (1e-3 * len(Z)), max_iter=2000).fit(Z, codes)
    scores = Z @ coef.T + intercept
    expected = exact.decision_function(Z)
    scores -= scores.mean(1, keepdims=True)
    expected -= expected.mean(1, keepdims=True)
    assert np.sqrt(np.mean((scores - expected) ** 2)) < 0.05 * expected.std()


def test_fixed_features_with_squares_reach_ridge() -> None:
    def targets(X: Any, rng: Any) -> Any:
        return (np.cos(X[:, :1]) + 0.1 * rng.normal(size=(len(X), 1))) * 2

    Z, y, coef, intercept = fitted_head(SQUARED, 1, targets, 1e-3)
    exact = Ridge(1e-3 * len(Z)).fit(Z, y)

    def minimised(coef: Any, intercept: Any) -> float:
        miss = Z @ np.ravel(coef) + intercept - y[:, 0]
        return float(np.mean(miss**2) + 1e-3 * np.sum(np.square(coef)))

    least = minimised(exact.coef_, exact.intercept_)
    assert least <= minimised(coef, intercept) < 1.001 * least


def test_dense_and_sparse_rows_train_alike() -> None:
    training = some_training(3, SOFTMAX, (1e-4,), batch=8, n_steps=50)
    data = some_rows(3, SOFTMAX)
    start = training.start(np.random.default_rng(5).normal(size=(P, J)), np.zeros(J))
    order = np.random.default_rng(6).permutation(N)
    sparse = data._replace(X=sp.csr_array(data.X.astype(np.float32)))
    dense, other = (
        train_rows(start, training, [rows], np.zeros(N, int), order) for rows in (data, sparse)
    )
    np.testing.assert_allclose(dense.parameters.heads, other.parameters.heads, atol=2e-3)


def test_a_step_leaves_its_state_as_it_was() -> None:
    training, data = some_training(3, SOFTMAX, (1e-4,)), some_rows(3, SOFTMAX)
    start = training.start(np.random.default_rng(5).normal(size=(P, J)), np.zeros(J))
    before = start.parameters.copy()
    once = train_rows(start, training, [data], np.zeros(N, int), np.arange(N))
    again = train_rows(start, training, [data], np.zeros(N, int), np.arange(N))
    for old, kept, one, two in zip(
        before, start.parameters, once.parameters, again.parameters, strict=True
    ):
        np.testing.assert_array_equal(old, kept)
        np.testing.assert_array_equal(one, two)


def test_units_and_origin_of_rows_change_nothing() -> None:
    data = some_rows(3, SOFTMAX)
    frequencies, phases = np.random.default_rng(5).normal(size=(P, J)), np.zeros(J)
    found = []
    for scale, shift in ((1.0, 0.0), (1e-6, 0.0), (1.0, 100.0)):
        moved = data._replace(X=data.X * scale + shift)
        w, b = frequencies / scale, phases - (frequencies / scale).sum(0) * shift
        training = OptimizerConfig(
            Objective(SOFTMAX, 3, (1e-4,)), input_scaling(moved.X, w), np.ones(J), 8, 50
        )
        state = training.start(w, b)
        state = train_in_memory(training, state, moved, 4 * N, np.random.default_rng(0))
        found.append(judge(training, state.parameters, moved).losses[0])
    np.testing.assert_allclose(found, found[0], rtol=1e-2)


def test_runaway_outputs_are_named() -> None:
    training = some_training(1, SQUARED, (0.0,), step_size=1e30)
    data = some_rows(1, SQUARED)
    start = training.start(np.random.default_rng(5).normal(size=(P, J)), np.zeros(J))
    with np.errstate(all="ignore"), pytest.raises(DivergedError, match="lower step_size"):
        train_in_memory(training, start, data, 20 * N, np.random.default_rng(0))


def test_widths_are_halved_on_growing_rows() -> None:
    asked: list[tuple[float, int]] = []

    def try_width(gamma: float, visits: int) -> Any:
        asked.append((gamma, visits))
        found = Trial.__new__(Trial, gamma, visits, None, None, None)  # type: ignore[arg-type]
        return _Fixed(found, abs(np.log(gamma)))

    chosen = choose_width([0.1, 1.0, 3.0, 50.0], try_width, 10**7)
    assert chosen[-1].gamma == 1.0
    assert [visits for _, visits in asked] == [10_000] * 4 + [40_000] * 3 + [120_000] * 2


class _Fixed:
    def __init__(self, trial: Trial, loss: float) -> None:
        self.gamma, self.visits, self.loss = trial.gamma, trial.visits, loss


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern32"])
def test_scaled_gamma_scales_frequencies(name: str) -> None:
    from rfcdask.kernels.frequencies import draw_candidates

    kernel = get_kernel(name)
    gamma = median_gamma(kernel, np.random.default_rng(0).normal(size=(100, 3)), np.random.default_rng(1))  # fmt: skip  # noqa: E501
    one, two = (
        draw_candidates(kernel, g, 3, 20, "iid", "random", 0).vectors
        for g in (gamma, scaled_gamma(kernel, gamma, 2.0))
    )
    np.testing.assert_allclose(two, 2 * one)

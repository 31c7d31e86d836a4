"""scikit-learn's own checks of what an estimator must do."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import rfcdask as rf

SMALL_DATA = {
    # A stochastic step weighs rows; two rows of weight 1 are not seen like one of weight 2.
    "check_sample_weight_equivalence_on_dense_data": "rows are shuffled and cut into batches",
    "check_sample_weight_equivalence_on_sparse_data": "rows are shuffled and cut into batches",
}


def expected_failures(estimator: Any) -> dict[str, str]:
    return SMALL_DATA if type(estimator).__name__.startswith(("SGD", "Kernel")) else {}


@pytest.mark.filterwarnings("ignore:The rows are ordered by class:UserWarning")
@parametrize_with_checks(
    [
        rf.SGDClassifier(random_state=0, epochs=20),
        rf.SGDClassifier("log_loss", multi_class="multinomial", random_state=0, epochs=20),
        rf.SGDRegressor(random_state=0, epochs=20),
        rf.KernelClassifier(20, epochs=20, random_state=0),
        rf.KernelRegressor(20, epochs=20, random_state=0),
        rf.Ridge(),
        rf.RidgeClassifier(),
        rf.PCA(),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator_rules(estimator: Any, check: Any) -> None:
    check(estimator)

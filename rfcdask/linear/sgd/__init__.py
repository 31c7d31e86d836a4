"""Linear models trained by stochastic gradient descent, a bounded number of blocks at a time."""

from rfcdask.linear.sgd.classifier import SGDClassifier
from rfcdask.linear.sgd.regressor import SGDRegressor

__all__ = ["SGDClassifier", "SGDRegressor"]

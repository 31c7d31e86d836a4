"""Linear models trained by stochastic gradient descent, a bounded number of blocks at a time."""

from rfcdask.linear.sgd.estimators import SGDClassifier, SGDRegressor

__all__ = ["SGDClassifier", "SGDRegressor"]

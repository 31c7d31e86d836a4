"""Linear models trained by stochastic gradient descent, a bounded number of blocks at a time."""

"""Choosing and weighting a few of many candidate features: numpy only, on rows in memory.

The chapters, in the order in which they build on each other:

    candidates  values of candidate features on the gathered rows; products and sums in fixed tiles
    target      what the kept features shall reproduce: the kernel, the candidates' sum, labels
    objective   the least-squares problem in Gram form, from all pairs of the rows or from some
    columns     columns of the Gram matrix on demand, and the forecast which come next
    refit       non-negative least squares over a growing set
    solvers     GIGA, Frank-Wolfe, matching pursuit: one step of each
    path        running a solver, the weights at every size, and when to stop
    refine      gradient steps on frequencies, phases and scales
    compress    all of it, from rows to features
"""

from rfcdask.selection.path import Path, frank_wolfe, giga, pursuit

__all__ = ["Path", "frank_wolfe", "giga", "pursuit"]

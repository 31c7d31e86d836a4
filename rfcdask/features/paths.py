"""How the error fell while features were chosen and refined."""

from __future__ import annotations

from typing import Any, NamedTuple

from rfcdask.display.charts import Chart, curve, error_path
from rfcdask.display.html import render_repr
from rfcdask.kernels.types import Array, IntArray


class ErrorPath(NamedTuple):
    """Relative errors of a selection at each size."""

    sizes: IntArray
    sampled: Array
    heldout: Array

    def plot(
        self, ax: Any = None, *, chosen: int | None = None, refined: float | None = None
    ) -> Any:
        """Draw both errors against the number of features; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        chosen : int, optional
            The size that was kept, which is marked.
        refined : float, optional
            The held-out error at that size after refinement.
        """
        return self.chart(chosen=chosen, refined=refined).plot(ax)

    def chart(self, *, chosen: int | None = None, refined: float | None = None) -> Chart:
        """Return the same, not drawn yet."""
        columns = (self.sizes.tolist(), self.sampled.tolist(), self.heldout.tolist())
        return error_path(*columns, chosen, refined)

    def _repr_html_(self) -> str:
        return render_repr(charts=[self.chart()])


class RefinePath(NamedTuple):
    """Relative error on held-out pairs while features were refined."""

    steps: IntArray
    heldout: Array

    def plot(self, ax: Any = None) -> Any:
        """Draw the error against the steps; returns the axes."""
        return self._chart().plot(ax)

    def _chart(self) -> Chart:
        steps, errors = self.steps.tolist(), self.heldout.tolist()
        return curve(steps, errors, "steps of refinement", "relative error, held out")

    def _repr_html_(self) -> str:
        return render_repr(charts=[self._chart()])

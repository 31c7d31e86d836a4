"""How the error fell while features were chosen and refined."""

from __future__ import annotations

from typing import Any, NamedTuple

from rfcdask._types import Array, IntArray
from rfcdask.plots import plot_curve, plot_error_path
from rfcdask.svg.markup import Markup
from rfcdask.svg.paths import curve, error_path


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
        return plot_error_path(ax, self.sizes, self.sampled, self.heldout, chosen, refined)

    def drawing(self, *, chosen: int | None = None, refined: float | None = None) -> Markup:
        """Return the same as inline SVG."""
        columns = (self.sizes.tolist(), self.sampled.tolist(), self.heldout.tolist())
        return error_path(*columns, chosen, refined)

    def _repr_html_(self) -> str:
        return self.drawing()


class RefinePath(NamedTuple):
    """Relative error on held-out pairs while features were refined."""

    steps: IntArray
    heldout: Array

    def plot(self, ax: Any = None) -> Any:
        """Draw the error against the steps; returns the axes."""
        label = "relative error on held-out pairs"
        return plot_curve(ax, self.steps, self.heldout, "steps of refinement", label)

    def _repr_html_(self) -> str:
        points = list(zip(self.steps.tolist(), self.heldout.tolist(), strict=True))
        return curve(points, "steps of refinement", "relative error, held out")

"""The report of a run: one HTML file with a plain recommendation at its top."""

from rfcdask.report.page import render
from rfcdask.report.recommendation import recommend

__all__ = ["recommend", "render"]

"""The report of a run: one HTML file with a plain recommendation at its top."""

from rfcdask.pipeline.report.page import render
from rfcdask.pipeline.report.recommendation import recommend

__all__ = ["recommend", "render"]

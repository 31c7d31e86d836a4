"""The report of a run: one HTML file with a plain recommendation at its top."""

from rfcdask.report.page import render, write_report
from rfcdask.report.recommendation import recommend

__all__ = ["recommend", "render", "write_report"]

"""Choosing and weighting a few of many candidate features."""

from rfcdask.selection.path import Path, frank_wolfe, giga, pursuit

__all__ = ["Path", "frank_wolfe", "giga", "pursuit"]

"""Judging maps and parameters: distance to the exact kernel, comparisons, tuning."""

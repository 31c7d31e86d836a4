"""What a piece of work will take, before anything runs."""

from rfcdask.planning.make import plan
from rfcdask.planning.result import Plan, PlanError

__all__ = ["Plan", "PlanError", "plan"]

"""What a piece of work will take, before anything runs."""

from rfcdask.plan.make import plan
from rfcdask.plan.result import Plan, PlanError

__all__ = ["Plan", "PlanError", "plan"]

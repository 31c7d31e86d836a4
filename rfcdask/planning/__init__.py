"""What a piece of work will take, before anything runs.

planner  the public function and what it returns
work     the data, the settings and the machines as numbers; tasks and bytes read
memory   peak memory by arithmetic, and what will not fit
speed    expected time, by rates that a probe of two seconds measures
"""

from rfcdask.planning.planner import Plan, PlanError, plan

__all__ = ["Plan", "PlanError", "plan"]

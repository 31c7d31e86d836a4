"""A whole run, from data to report: phases with products on disk, so that any of them can fail."""

from rfcdask.job.folder import OtherRunError, RunExistsError, RunFolder, UnfinishedRunError
from rfcdask.job.results import comparable
from rfcdask.job.run import run_job
from rfcdask.job.settings import Settings, SettingsError

__all__ = [
    "OtherRunError",
    "RunExistsError",
    "RunFolder",
    "Settings",
    "SettingsError",
    "UnfinishedRunError",
    "comparable",
    "run_job",
]

"""A whole run, from data to report: phases with products on disk, so that any of them can fail.

Names are imported when they are first used: the command line offers the settings, whose file
imports nothing heavy, as options.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.pipeline.folder import OtherRunError, RunExistsError, RunFolder, UnfinishedRunError
    from rfcdask.pipeline.phases import comparable
    from rfcdask.pipeline.run import fit_model, run_job
    from rfcdask.pipeline.settings import Settings, SettingsError

__all__ = [
    "OtherRunError",
    "RunExistsError",
    "RunFolder",
    "Settings",
    "SettingsError",
    "UnfinishedRunError",
    "comparable",
    "fit_model",
    "run_job",
]

_NAMES = {
    "folder": ("OtherRunError", "RunExistsError", "RunFolder", "UnfinishedRunError"),
    "phases": ("comparable",),
    "run": ("fit_model", "run_job"),
    "settings": ("Settings", "SettingsError"),
}
_HOME = {name: file for file, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

"""Where the cluster at work shows itself."""

from __future__ import annotations

import importlib.util

from rfcdask.execution.cluster import current_client


def dashboard_link() -> str:
    """Return the address of the current client's dashboard, or nothing."""
    client = current_client()
    link = str(getattr(client, "dashboard_link", None) or "")
    # A scheduler on this machine has pages to show only with bokeh.
    if "://127.0.0.1:" in link and importlib.util.find_spec("bokeh") is None:
        return ""
    return link

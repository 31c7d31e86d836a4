"""How much memory a run takes: its own process, its children, and workers elsewhere."""

from __future__ import annotations

import threading
from typing import Any, Self

import psutil

from rfcdask.execution.failures import workers_of

INTERVAL = 0.1
CHILDREN_EVERY = 20
"""Looks between two listings of the children: a listing goes through all processes there are."""


class MemoryMeter:
    """Looks ten times a second at the memory of all processes of the run.

    Parameters
    ----------
    remote : distributed.Client, optional
        A client whose workers are no children of this process; they are asked at each lap.
    """

    def __init__(self, remote: Any = None) -> None:
        self._remote = remote
        self._me = psutil.Process()
        self._family = self._list()
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rfcdask-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def lap(self) -> int:
        """Return the largest sum of resident bytes since the last call."""
        self._family = self._list()
        peak, self._peak = max(self._peak, self._here()), 0
        return peak + self._elsewhere()

    def _watch(self) -> None:
        looks = 0
        while not self._stop.wait(INTERVAL):
            looks += 1
            if looks % CHILDREN_EVERY == 0:
                self._family = self._list()
            self._peak = max(self._peak, self._here())

    def _list(self) -> list[psutil.Process]:
        return [self._me, *self._me.children(recursive=True)]

    def _here(self) -> int:
        return sum(map(_resident, self._family))

    def _elsewhere(self) -> int:
        if self._remote is None:
            return 0
        return sum(worker.memory for worker in workers_of(self._remote).values())


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between the listing and the look
        return 0

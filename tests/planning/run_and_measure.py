"""Do the real work of a plan in this process and its workers; print the plan and the peaks.

Run: python run_and_measure.py STORE WHERE SETTINGS_AS_JSON
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import psutil

import rfcdask as rf


class Peaks:
    """Samples the resident memory of this process and of all below it."""

    def __init__(self) -> None:
        self.most: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(0.01):
            for process in (own, *own.children(recursive=True)):
                try:
                    size = process.memory_info().rss
                except psutil.Error:
                    continue
                self.most[process.pid] = max(self.most.get(process.pid, 0), size)


def _pid() -> int:
    return psutil.Process().pid


def work(dataset: Any, settings: dict[str, Any]) -> None:
    if settings.get("method") == "learned":
        own = {name: settings[name] for name in ("n_components", "epochs")}
        rf.KernelClassifier(random_state=0, **own).fit(dataset.X, dataset.y)
        return
    names = ("n_components", "n_candidates", "n_rows", "n_pairs", "refine")
    chosen = {name: settings[name] for name in names if name in settings}
    features = rf.CompressedFeatures(random_state=0, **chosen).fit(dataset.X, dataset.y)
    model = rf.SGDClassifier(
        epochs=settings["epochs"], persist=settings.get("persist", "auto"), random_state=0
    )
    model.fit(features.transform(dataset.X), dataset.y)


def main() -> None:
    store, where, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    dataset = rf.open_dataset(store)
    with rf.connect(where) as client:
        workers = [] if client is None else list(client.run(_pid).values())
        plan = rf.plan(dataset, **settings)
        with Peaks() as peaks:
            start = time.perf_counter()
            work(dataset, settings)
            seconds = time.perf_counter() - start
        measured = {
            "driver": peaks.most[_pid()],
            "worker": max((peaks.most[pid] for pid in workers), default=0),
            "seconds": seconds,
        }
    print(json.dumps({"plan": plan.to_dict(), "measured": measured}))


if __name__ == "__main__":
    main()

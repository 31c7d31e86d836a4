"""The work behind ``rfcdask fit``: steps that are kept, so that a second call goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rfcdask.cli.common import note, on_interrupt, plain
from rfcdask.cli.inputs import is_store, read_file, reading_options
from rfcdask.cli.models import make_learner
from rfcdask.cli.outputs import remove, store_state, unfinished
from rfcdask.features.methods import LABEL_WEIGHT, METHODS, make_map
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import faults_as, read_json

CHECKPOINT_BLOCKS = 4
"""Blocks between two checkpoints: a block of features may take a minute, saving takes nothing."""
_FREE = ("overwrite", "ignore_plan")
_KEPT = ("map", "sgd.npz")


class Fitting:
    """One fit, with a folder ``MODEL.unfinished`` for what is done.

    Parameters
    ----------
    data, model : str
        The arguments of the command.
    settings : dict
        Its options.
    client : distributed.Client or None
    """

    def __init__(self, data: str, model: str, settings: dict[str, Any], client: Any) -> None:
        self.data, self.model, self.settings, self.client = data, model, settings, client
        self.folder = unfinished(model)
        self.seed: int = settings["seed"]

    def run(self) -> dict[str, Any]:
        """Do what is not done yet, write the model and return what is to be said of it."""
        from rfcdask.data.columns import remember
        from rfcdask.persist.models import save

        started = time.perf_counter()
        dataset = self._open()
        standard = self._standardizes(dataset)
        train, test = self._parts(dataset, standard)
        self._refuse_what_cannot_fit(train)
        self._begin(dataset)
        steps = self._fitted_steps(dataset, train, standard)
        pipeline = _pipeline(steps)
        result = self._result(pipeline, dataset, train, test, time.perf_counter() - started)
        about = {
            "command": "rfcdask fit",
            "seed": self.seed,
            "test_size": self.settings["test_size"],
            "metric": result.get("metric"),
            "score": result.get("score"),
            "data": remember(dataset, self.data),
        }
        save(pipeline, self.model, overwrite=self.settings["overwrite"], about=plain(about))
        remove(self.folder)
        return result

    def _open(self) -> Any:
        from rfcdask.data import open_dataset
        from rfcdask.data.location import require_shared

        if is_store(self.data):
            require_shared(self.client, reads=[Path(self.data).absolute()])
            return open_dataset(self.data)
        on_interrupt(self._how_to_go_on())
        options = {"task": self.settings["task"], "shuffle": True, "random_state": self.seed}
        place = self._place_of_rows(options)
        if store_state(place):
            return open_dataset(place)
        note(f"{self.data} is no store: reading it into {place} first, which is gone at the end.")
        return read_file(self.data, place.absolute(), self.settings, **options)

    def _place_of_rows(self, options: dict[str, Any]) -> Path:
        """Return where the rows of a file go: a place of its own for each content and reading."""
        from dask.base import tokenize

        from rfcdask.data.sources.detect import expand
        from rfcdask.data.sources.files import file_facts

        facts = [file_facts(path) for path in expand(self.data)]
        place = (
            self.folder / f"data-{tokenize(facts, reading_options(self.settings), options)}.zarr"
        )
        for other in self.folder.glob("data-*.zarr"):
            if other != place:
                remove(other)
        return place

    def _require_labels(self, dataset: Any) -> None:
        needed = self.settings["learner"] != "none"
        if dataset.y is None and (needed or self.settings["map_name"] == "compressed-labels"):
            remove(self.folder)
            raise ValueError(
                f"{self.data} has no labels to learn from: ingest it with --label, or pass "
                "--learner none for a feature map alone."
            )

    def _how_to_go_on(self) -> str:
        return (
            f"Interrupted: call the same command again to go on; {self.folder} keeps what is done."
        )

    def _begin(self, dataset: Any) -> None:
        """Make the folder, or make sure that it belongs to the same fit."""
        on_interrupt(self._how_to_go_on())
        wishes = {k: plain(v) for k, v in self.settings.items() if k not in _FREE}
        wishes["content"] = getattr(dataset.reader, "fingerprint", None)
        record = self.folder / "settings.json"
        if record.exists() and any((self.folder / name).exists() for name in _KEPT):
            before = _read_settings(record)
            differs = [k for k in wishes if before.get(k) != wishes[k]]
            if not differs:
                note(f"Going on with {self.folder}.")
                return
            if not self.settings["overwrite"]:
                raise FileExistsError(_other_fit(self.folder, differs[0], before, wishes))
            remove(self.folder / "map")
            (self.folder / "sgd.npz").unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(record, "w") as file:
            file.write(json.dumps(wishes, indent=1) + "\n")

    def _standardizes(self, dataset: Any) -> bool:
        from rfcdask.linear.standardize import wants_standardizing

        asked: bool | None = self.settings["standardize"]
        if asked is not None:
            return asked
        chosen = wants_standardizing(dataset)
        why = "some lie outside -1..1" if chosen else "all lie in -1..1"
        note(f"Columns are {'standardized' if chosen else 'left as they are'}: {why}.")
        return chosen

    def _parts(self, dataset: Any, standard: bool) -> tuple[Any, Any]:
        """Return the rows to learn from, as the map sees them, and those held out, as stored."""
        share = self.settings["test_size"]
        seen = dataset.standardize() if standard else dataset
        if share is None:
            return seen, None
        return seen.split(share, self.seed)[0], dataset.split(share, self.seed)[1]

    def _refuse_what_cannot_fit(self, train: Any) -> None:
        self._require_labels(train)
        if self.settings["ignore_plan"]:
            return
        from rfcdask.planning import plan

        name, learner = self.settings["map_name"], self.settings["learner"]
        wanted = {"fit": name != "none", "train": learner != "none"}
        several = name != "none" and METHODS[name].has_candidates
        plan(
            train,
            n_components=self.settings["components"],
            n_candidates=self.settings["candidates" if several else "components"],
            n_rows=self.settings["sample_rows"],
            epochs=self.settings["epochs"] if learner == "sgd" else 1,
            steps=tuple(step for step in wanted if wanted[step]),
            client=self.client,
            probe=False,
        ).check()

    def _fitted_steps(self, dataset: Any, train: Any, standard: bool) -> list[tuple[str, Any]]:
        from rfcdask.linear.standardize import Standardizer

        steps: list[tuple[str, Any]] = []
        if standard:
            steps.append(("standardize", Standardizer.of(dataset)))
        X = train.X
        if self.settings["map_name"] != "none":
            feature_map = self._map(train)
            steps.append(("features", feature_map))
            X = feature_map.transform(X)
        if self.settings["learner"] != "none":
            steps.append(("learner", self._learner(dataset, X, train.y)))
        return steps

    def _map(self, train: Any) -> Any:
        from rfcdask.persist.models import load, save

        place = self.folder / "map"
        if (place / "model.json").exists():
            note("The features are chosen already.")
            return load(place)
        weight = self.settings["label_weight"]
        feature_map = make_map(
            self.settings["map_name"],
            self.settings["components"],
            kernel=self.settings["kernel"],
            gamma=self.settings["gamma"],
            n_candidates=self.settings["candidates"],
            label_weight=LABEL_WEIGHT if weight is None else weight,
            random_state=self.seed,
            n_rows=self.settings["sample_rows"],
        )
        feature_map.fit(train.X, train.y, client=self.client)
        save(feature_map, place)
        return feature_map

    def _learner(self, dataset: Any, X: Any, y: Any) -> Any:
        task = dataset.attrs.get("task")
        learner = make_learner(self.settings, task, X.shape[0], self.seed)
        if self.settings["learner"] == "sgd":
            kept = {"checkpoint": self.folder / "sgd.npz", "checkpoint_every": CHECKPOINT_BLOCKS}
            learner.set_params(**kept)
        learner.fit(X, y, client=self.client)
        if self.settings["learner"] == "sgd":
            learner.set_params(checkpoint=None)
        return learner

    def _result(
        self, pipeline: Any, dataset: Any, train: Any, test: Any, seconds: float
    ) -> dict[str, Any]:
        feature_map = pipeline.named_steps.get("features")
        result = {
            "model": self.model,
            "map": self.settings["map_name"],
            "n_components": None if feature_map is None else feature_map._n_features_out,
            "gamma": getattr(feature_map, "gamma_", None),
            "heldout_error": getattr(feature_map, "heldout_error_", None),
            "learner": self.settings["learner"],
            "standardized": "standardize" in pipeline.named_steps,
            "rows": train.shape[0],
            "columns": dataset.shape[1],
            "seconds": seconds,
        }
        if test is not None and "learner" in pipeline.named_steps:
            numbers = dataset.attrs.get("task") == "regression"
            result |= {
                "test_rows": test.shape[0],
                "metric": "R2" if numbers else "accuracy",
                "score": pipeline.score(test.X, test.y),
            }
        return result


def _read_settings(path: Path) -> dict[str, Any]:
    with faults_as(
        lambda why: ValueError(f"{path} is damaged ({why}): remove {path.parent} to begin anew.")
    ):
        return dict(read_json(path))


def _pipeline(steps: list[tuple[str, Any]]) -> Any:
    from sklearn.pipeline import Pipeline

    return Pipeline(steps)


def _other_fit(folder: Path, key: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    if key == "content":
        why = "the data have changed since"
    else:
        why = f"{key} was {before.get(key)!r} and is now {now[key]!r}"
    return (
        f"{folder} holds an unfinished fit of another kind ({why}): repeat that one, or pass "
        "--overwrite to begin anew."
    )

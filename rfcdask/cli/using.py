"""What commands that use a saved model share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rfcdask.cli.errors import UnfinishedError
from rfcdask.cli.inputs import matched, opened_data
from rfcdask.cli.outputs import unfinished


class Saved(NamedTuple):
    """A saved model in three parts, and what it remembers of its data."""

    whole: Any
    features: Any
    learner: Any
    about: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """What is known of its data; of a model that was saved in Python, what it says itself."""
        if _is_known(self.about.get("data")):
            known: dict[str, Any] = self.about["data"]
            return known
        first = self.whole[0] if hasattr(self.whole, "steps") else self.whole
        names, size = getattr(first, "feature_names_in_", None), int(first.n_features_in_)
        return {
            "columns": size,
            "columns_in_file": size,
            "column_names": None if names is None else [str(name) for name in names],
        }


def _is_known(data: Any) -> bool:
    """Tell what `fit` and `run` keep of their data from notes of one's own under that name."""
    if not isinstance(data, dict):
        return False
    sizes = [data.get(name) for name in ("columns", "columns_in_file")]
    names, projection = data.get("column_names"), data.get("projection")
    return (
        all(isinstance(size, int) for size in sizes)
        and (names is None or (_are_names(names) and len(names) == sizes[1]))
        and (projection is None or {"seed", "checksum"} <= set(projection))
    )


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def load_model(path: str) -> Saved:
    """Load a model: a pipeline, or one of its steps alone."""
    if not Path(path).exists() and unfinished(path).exists():
        raise UnfinishedError(
            f"{path} is unfinished: run the command that writes it again, it goes on where it "
            "stopped."
        )
    if not (Path(path) / "model.json").is_file():
        raise FileNotFoundError(f"{path} is not a saved model: give a folder that fit wrote.")
    from sklearn.pipeline import Pipeline

    from rfcdask.persist.models import describe, load

    about = describe(path).get("about")
    about = about if isinstance(about, dict) else {}
    model = load(path)
    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    predicts = hasattr(steps[-1][1], "predict")
    learner = steps[-1][1] if predicts else None
    before = steps[:-1] if predicts else steps
    return Saved(model, Pipeline(before) if before else None, learner, about)


@contextmanager
def rows_for(
    saved: Saved, data: str, options: dict[str, Any], client: Any, *, labels: bool
) -> Iterator[Any]:
    """Open DATA with the columns that a model needs, in its order."""
    like = saved.data
    with opened_data(data, options, client, like, labels=labels) as dataset:
        yield matched(dataset, data, like)


def require_learner(saved: Saved, path: str) -> None:
    """Refuse to predict with a feature map."""
    if saved.learner is None:
        raise ValueError(
            f"{path} is a feature map without a learner: fit it with --learner sgd or ridge."
        )

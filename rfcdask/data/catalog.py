"""The recipes: what each known data set is, where it lies, and how it should come out."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rfcdask.data.errors import DataError
from rfcdask.data.sources.base import Survey
from rfcdask.persist.untrusted import faults_as, read_text

RECIPE_BYTES = 2**20


@dataclass(frozen=True)
class Part:
    """One part of a data set, such as the training rows."""

    urls: tuple[str, ...]  # official addresses
    rows: int
    files: tuple[str, ...]  # names in the cache
    sha256: tuple[str | None, ...]  # where known
    member: str | None = None  # of an archive
    label_member: str | None = None
    labels: bool = True  # whether there are true ones


@dataclass(frozen=True)
class Recipe:
    """One data set as its TOML file describes it."""

    name: str
    title: str
    home: str
    format: str
    columns: int
    classes: tuple[Any, ...]
    preparation: str
    parts: dict[str, Part]
    default: str = "all"
    ingest: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, Any] = field(default_factory=dict)

    def chosen(self, part: str) -> list[Part]:
        """Return one part, or every part for "all"."""
        if part in self.parts:
            return [self.parts[part]]
        if part == "all":
            return list(self.parts.values())
        names = ", ".join([*self.parts, "all"])
        raise DataError(f"{self.name} has no part {part!r}: choose one of {names}.")

    def check(self, part: str, n_rows: int, n_columns: int, classes: Any) -> None:
        """Compare what was found with the recipe and name every difference."""
        parts = self.chosen(part)
        wanted = sum(p.rows for p in parts)
        found = []
        if n_rows != wanted:
            found.append(f"{n_rows:,} rows instead of {wanted:,}")
        if n_columns != self.columns:
            found.append(f"{n_columns:,} columns instead of {self.columns:,}")
        if all(p.labels for p in parts) and list(classes or ()) != list(self.classes):
            found.append(f"classes {_shown(classes)} instead of {_shown(self.classes)}")
        if found:
            raise DataError(
                f"this is not {self.name} ({part}): it has {' and '.join(found)}; give the file "
                f"from {self.home}."
            )

    def check_survey(self, part: str, survey: Survey) -> None:
        """Compare the first look at a source with the recipe."""
        classes = None if survey.labels is None else survey.labels.classes
        self.check(part, survey.n_rows, survey.n_columns, classes)


def _shown(classes: Any, most: int = 12) -> str:
    listed = list(classes or ())
    more = ", ..." if len(listed) > most else ""
    return "[" + ", ".join(str(value) for value in listed[:most]) + more + "]"


def recipe_folder() -> Path:
    """Return where the recipes lie: in the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "recipes"
    return packaged if packaged.is_dir() else here.parents[1] / "datasets"


def recipe_names() -> list[str]:
    """Return the names of all known data sets."""
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Read one recipe by name."""
    path = recipe_folder() / f"{name}.toml"
    if name not in recipe_names():
        raise DataError(f"there is no recipe {name!r}: choose one of {', '.join(recipe_names())}.")
    with faults_as(lambda why: DataError(f"{path} is no recipe ({why}): restore it.")):
        data = tomllib.loads(read_text(path, RECIPE_BYTES))
        parts = {part: _part(values) for part, values in data.pop("parts").items()}
        classes = tuple(data.pop("classes"))
        return Recipe(name=name, parts=parts, classes=classes, **data)


def _part(values: dict[str, Any]) -> Part:
    urls = tuple(values.pop("urls"))
    files = tuple(values.pop("files", [url.rpartition("/")[2] for url in urls]))
    sums = tuple(values.pop("sha256", [None] * len(urls)))
    return Part(urls=urls, files=files, sha256=sums, **values)

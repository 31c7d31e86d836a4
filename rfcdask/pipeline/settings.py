"""The settings of a run: defaults, a TOML file, ``key=value`` pairs; imports nothing heavy."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rfcdask.features.methods import LABEL_WEIGHT, METHODS
from rfcdask.persist.untrusted import faults_as, read_text

KERNELS = ("rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52")
LEARNERS = ("svm", "logistic", "ridge")


CONFIG_BYTES = 2**20
"""Most bytes of a file of settings."""


class SettingsError(ValueError):
    """A setting that does not exist, or a value it cannot have."""


def _setting(default: Any, kind: str, about: str, choices: Sequence[str] = ()) -> Any:
    about = f"{about} {', '.join(choices)}" if choices else about
    given = {"default_factory": default} if callable(default) else {"default": default}
    return field(**given, metadata={"kind": kind, "about": about, "choices": tuple(choices)})


# ruff: noqa: RUF009 - `_setting` only wraps dataclasses.field
@dataclass(frozen=True)
class Settings:
    """Everything that decides what a run finds; ``"auto"`` is settled when the data are known."""

    seed: int = _setting(0, "whole", "seed of everything that is drawn")
    rows: int = _setting(1_000_000, "count", "rows of the data made when no file is given")
    label: Any = _setting(None, "column", "label column by name or number, where unclear")
    task: str = _setting("auto", "word", "what labels are:", ("auto", "classification"))
    nan: str = _setting("raise", "word", "rows with missing values:", ("raise", "drop"))
    project: int | None = _setting(None, "optional", "project rows to so many columns")
    shuffle: bool = _setting(True, "flag", "shuffle the rows of files while they are read")
    block_size: str = _setting("16MB", "size", "size of the blocks on disk")
    test_size: float | str = _setting(
        "auto", "share", "share of the rows held out, or their number"
    )
    standardize: bool | str = _setting("auto", "autoflag", "mean 0 and variance 1 in each column")
    kernel: str = _setting("rbf", "word", "kernel:", KERNELS)
    gamma: float | str = _setting("median", "gamma", "width: a number, median, scale or tune")
    sizes: list[int] | str = _setting("auto", "counts", "numbers of features to compare")
    n_candidates: int | str = _setting("auto", "autocount", "random features to choose from")
    n_rows: int = _setting(5000, "count", "rows on which features are chosen")
    refine: int = _setting(300, "whole", "gradient steps on the chosen features")
    label_weight: float = _setting(
        LABEL_WEIGHT, "positive", "weight of labels in compressed-labels"
    )
    methods: list[str] = _setting(
        lambda: list(METHODS)[:-1], "words", "maps to compare, of", tuple(METHODS)
    )
    compare_rows: int | str = _setting("auto", "autocount", "rows the compared maps learn from")
    compare_test_rows: int | str = _setting("auto", "autocount", "held-out rows they are tried on")
    method: str = _setting(
        "compressed-labels", "word", "map of the final model, of", tuple(METHODS)
    )
    learner: str = _setting("svm", "word", "final model:", LEARNERS)
    epochs: int = _setting(3, "count", "passes over the training rows")

    def __post_init__(self) -> None:
        for known in fields(self):
            value = check(known.name, getattr(self, known.name))
            object.__setattr__(self, known.name, value)
        if self.method not in self.methods:
            object.__setattr__(self, "methods", [*self.methods, self.method])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return asdict(self)


def describe() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting."""
    plain = Settings().to_dict()
    return [(f.name, show(plain[f.name]), f.metadata["about"]) for f in fields(Settings)]


def show(value: Any) -> str:
    """Return a value as it would be written after ``--set key=``."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def check_name(name: str, where: str) -> str:
    """Return the name of a setting, or raise with the nearest one."""
    name = name.strip().replace("-", "_")
    known = [f.name for f in fields(Settings)]
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
    raise SettingsError(f"{where}: there is no setting {name!r}; {meant}")


def from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` pairs, as given to ``--set``."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--set {pair}: write it as key=value.")
        name = check_name(name, f"--set {pair}")
        found[name] = check(name, _read(text.strip()))
    return found


def from_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file of settings; keys at its top or in a table ``[run]``."""
    try:
        with faults_as(_no_toml(path), FileNotFoundError):
            table = tomllib.loads(read_text(Path(path), CONFIG_BYTES))
    except FileNotFoundError:
        raise SettingsError(f"There is no file {os.fspath(path)}: give a TOML file.") from None
    inner = table.pop("run", {})
    if not isinstance(inner, dict):
        raise SettingsError(f"{os.fspath(path)}: 'run' must be a table, [run].")
    return from_mapping(table | inner, os.fspath(path))


def _no_toml(path: str | os.PathLike[str]) -> Callable[[str], SettingsError]:
    return lambda why: SettingsError(f"{os.fspath(path)} is no TOML file: {why}.")


def from_mapping(values: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Check names and values of settings given as a mapping."""
    named = {check_name(name, where): value for name, value in values.items()}
    return {name: check(name, value) for name, value in named.items()}


def check(name: str, value: Any) -> Any:
    """Return the value of a setting in its own type, or say what it takes."""
    about = Settings.__dataclass_fields__[name].metadata
    try:
        return _KINDS[about["kind"]](value, about["choices"])
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise SettingsError(
            f"{name}={show(value)[:200]} cannot be used; it is {_TAKES[about['kind']]} "
            f"({about['about']})."
        ) from None


def _read(text: str) -> Any:
    """Read what stands after the equals sign: a number, a truth value, none, or words."""
    if text.lower() in ("none", "null", ""):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number of too many digits
        return text


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or value != int(value) or int(value) < least:
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, (bool, str)) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _one_of(value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError
    return str(value)


def _positive(value: Any, zero: bool = False) -> float:
    number = _number(value)
    if number < 0 or (number == 0 and not zero):
        raise ValueError
    return number


def _share(value: Any, _: Any) -> float | int | str:
    if value == "auto":
        return "auto"
    return _positive(value) if 0 < _number(value) < 1 else _whole(value, 1)


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [_read(part.strip()) for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _counts(value: Any, _: Any) -> list[int] | str:
    if value == "auto":
        return "auto"
    found = sorted({_whole(item, 2) for item in _items(value)})
    if not found:
        raise ValueError
    return found


def _words(value: Any, choices: Sequence[str]) -> list[str]:
    found = list(dict.fromkeys(_one_of(item, choices) for item in _items(value)))
    if not found:
        raise ValueError
    return found


def _size(value: Any, _: Any) -> str:
    from dask.utils import parse_bytes

    if isinstance(value, bool) or not isinstance(value, str | int) or parse_bytes(value) < 1:
        raise ValueError
    return str(value)


def _flag(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _column(value: Any, _: Any) -> str | int | None:
    if value is None or isinstance(value, (str, int)):
        return value
    raise TypeError


_KINDS: dict[str, Any] = {
    "whole": lambda value, _: _whole(value, 0),
    "count": lambda value, _: _whole(value, 1),
    "optional": lambda value, _: None if value is None else _whole(value, 1),
    "autocount": lambda value, _: "auto" if value == "auto" else _whole(value, 1),
    "counts": _counts,
    "positive": lambda value, _: _positive(value, zero=True),
    "gamma": lambda value, _: value if value in ("scale", "median", "tune") else _positive(value),
    "share": _share,
    "size": _size,
    "flag": _flag,
    "autoflag": lambda value, _: "auto" if value == "auto" else _flag(value, _),
    "column": _column,
    "word": _one_of,
    "words": _words,
}
_TAKES = {
    "whole": "a whole number of at least 0",
    "count": "a whole number of at least 1",
    "optional": "a whole number of at least 1, or none",
    "autocount": "a whole number of at least 1, or auto",
    "counts": "whole numbers of at least 2 with commas between, or auto",
    "positive": "a number of at least 0",
    "gamma": "a number above 0, or scale, median or tune",
    "share": "a share below 1, a number of rows, or auto",
    "size": "a size such as 16MB",
    "flag": "true or false",
    "autoflag": "true, false or auto",
    "column": "a column's name or number",
    "word": "one word",
    "words": "words with commas between",
}

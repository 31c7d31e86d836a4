"""The settings of ``rfcdask run`` and ``rfcdask fit`` and their defaults; imports nothing heavy.

They come from defaults, a TOML file, ``key=value`` pairs, or options of the same names.
"""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from rfcdask.features import LABEL_WEIGHT, METHODS, NEIGHBOURS
from rfcdask.linear import SCORERS
from rfcdask.persist.untrusted import faults_as, parse_toml, read_toml

KERNELS = ("rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52")
FORMATS = ("svmlight", "csv", "parquet", "npy", "npz", "zarr")

READING = ("label", "columns", "format", "delimiter", "header", "zero_based", "nan")
"""The settings that tell how a file is read."""
STORING = ("task", "project", "sparse", "shuffle", "block_size")
"""The settings that tell how a file is written to a store."""
COMPARING = ("rows", "sizes", "methods", "compare_rows", "compare_test_rows")
"""The settings that ``fit`` has no use for."""
CONFIG_BYTES = 2**20
"""Most bytes of a file of settings."""
RENAMED = {"seed": "random_state"}
"""Settings by the names they had before, as records of older runs still call them."""


class SettingsError(ValueError):
    """A setting that does not exist, or a value it cannot have."""


class Kind(NamedTuple):
    """What a setting takes: how a value is read, how that is said, and which words there are."""

    read: Callable[[Any], Any]
    takes: str
    choices: tuple[str, ...] = ()


def _whole(least: int) -> Kind:
    def read(value: Any) -> int:
        if isinstance(value, bool) or value != int(value) or int(value) < least:
            raise ValueError
        return int(value)

    return Kind(read, f"a whole number of at least {least}")


def _number(value: Any, *, zero: bool) -> float:
    if isinstance(value, (bool, str)) or not math.isfinite(value):
        raise ValueError
    if value < 0 or (value == 0 and not zero):
        raise ValueError
    return float(value)


def one_of(choices: Sequence[str]) -> Kind:
    """Take one of some words."""

    def read(value: Any) -> str:
        word = "none" if value is None else value  # what is typed as none is read as None
        if word not in choices:
            raise ValueError
        return str(word)

    return Kind(read, f"one of {', '.join(choices)}", tuple(choices))


def _or(kind: Kind, *words: str | None) -> Kind:
    """Take some words, or None, as well."""
    takes = f"{kind.takes}, or {' or '.join(word or 'none' for word in words)}"
    choices = (*kind.choices, *filter(None, words))
    return Kind(lambda v: v if v in words else kind.read(v), takes, choices)


def list_of(kind: Kind, takes: str = "values", *, in_order: bool = False) -> Kind:
    """Take several values, as a list or with commas between, each once."""

    def read(value: Any) -> list[Any]:
        if isinstance(value, str):
            value = [_read_text(part.strip()) for part in value.split(",") if part.strip()]
        items = value if isinstance(value, (list, tuple)) else [value]
        found = list(dict.fromkeys(kind.read(item) for item in items))
        if not found:
            raise ValueError
        return sorted(found) if in_order else found

    return Kind(read, f"{takes} with commas between", kind.choices)


def _is_a(*types: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise TypeError
        return value

    return read


def _column(value: Any) -> Any:
    if isinstance(value, list | tuple) and value:
        return [_is_a(str, int)(one) for one in value]
    return value if value is False else _is_a(str, int)(value)


def _columns(value: Any) -> dict[str, Any]:
    """Read what was decided of columns, so that nobody needs the file any more."""
    from rfcdask.data.errors import DataError
    from rfcdask.data.tables import read_choices

    try:
        return read_choices(value).to_json()
    except DataError as error:
        raise SettingsError(str(error)) from None


def _share(value: Any) -> float | int:
    found = _number(value, zero=False)
    return found if found < 1 else COUNT.read(value)


def _size(value: Any) -> str:
    from dask.utils import parse_bytes

    if isinstance(value, bool) or not isinstance(value, str | int) or parse_bytes(value) < 1:
        raise ValueError
    return str(value)


COUNT, WHOLE = _whole(1), _whole(0)
AUTO_COUNT, MAYBE_COUNT = _or(COUNT, "auto"), _or(COUNT, None)
POSITIVE = Kind(lambda value: _number(value, zero=False), "a number above 0")
NOT_NEGATIVE = Kind(lambda value: _number(value, zero=True), "a number of at least 0")
FLAG = Kind(_is_a(bool), "true or false")
AUTO_FLAG, MAYBE_FLAG = _or(FLAG, "auto"), _or(FLAG, None)
TEXT = _or(Kind(_is_a(str), "text"), None)
COLUMN = _or(Kind(_column, "a column's name or number, several of them, or false"), None)
SIZE = Kind(_size, "a size such as 16MB")
SHARE = _or(Kind(_share, "a share below 1, a number of rows"), "auto", None)
GAMMA = _or(POSITIVE, "scale", "median", "tune")
COUNTS = _or(list_of(_whole(2), "whole numbers of at least 2", in_order=True), "auto")
METHOD_NAMES = list_of(one_of((*METHODS, *NEIGHBOURS)), "words")
METHOD = one_of(("auto", *METHODS, "none"))
LEARNER = one_of(("auto", "svm", "logistic", "ridge", "sgd", "none"))
LOSS = one_of(("auto", "hinge", "squared_hinge", "log_loss", "squared_error", "huber"))
SCORING = one_of(("auto", *SCORERS))
CALIBRATION = _or(one_of(("sigmoid", "isotonic")), None)
CLASS_WEIGHT = _or(one_of(("balanced",)), None)
TASK = one_of(("auto", "classification", "regression"))
NAN = one_of(("auto", "raise", "drop", "drop-unlabelled"))
COLUMNS = Kind(_columns, "a TOML file, or kinds by name")


def _setting(default: Any, kind: Kind, about: str) -> Any:
    given = {"default_factory": default} if callable(default) else {"default": default}
    return field(**given, metadata={"kind": kind, "about": about})


# ruff: noqa: RUF009 - `_setting` only wraps dataclasses.field
@dataclass(frozen=True)
class Settings:
    """Everything that decides what is found; ``"auto"`` is settled when the data are known."""

    random_state: int = _setting(0, WHOLE, "seed of everything that is drawn")
    rows: int = _setting(1_000_000, COUNT, "rows of the data made when no file is given")
    label: Any = _setting(None, COLUMN, "label column by name or number, or several targets")
    columns: Any = _setting(None, _or(COLUMNS, None), "TOML file of the kinds of columns")
    format: str | None = _setting(None, _or(one_of(FORMATS), None), "format, where unclear")
    delimiter: str | None = _setting(None, TEXT, "between the fields of a CSV file")
    header: bool | None = _setting(None, MAYBE_FLAG, "whether a CSV file names its columns")
    zero_based: bool | str = _setting("auto", AUTO_FLAG, "whether svmlight columns begin at 0")
    task: str = _setting("auto", TASK, "what labels are")
    nan: str = _setting("auto", NAN, "rows with missing values")
    project: int | None = _setting(None, MAYBE_COUNT, "project rows to so many columns")
    sparse: bool | str = _setting("auto", AUTO_FLAG, "store sparse rows as sparse blocks")
    shuffle: bool = _setting(True, FLAG, "shuffle the rows of files while they are read")
    block_size: str = _setting("16MB", SIZE, "size of the blocks on disk")
    test_size: float | str | None = _setting("auto", SHARE, "share of rows held out, or number")
    standardize: bool | str = _setting("auto", AUTO_FLAG, "mean 0 and variance 1 in each column")
    kernel: str = _setting("rbf", one_of(KERNELS), "kernel")
    gamma: float | str = _setting(
        "median", GAMMA, "width of the kernel, a number or a rule (learned: by trials)"
    )
    sizes: list[int] | str = _setting("auto", COUNTS, "numbers of features to compare")
    n_components: int | str = _setting(
        "auto", AUTO_COUNT, "features of the final model (auto: the largest of sizes)"
    )
    n_candidates: int | str = _setting("auto", AUTO_COUNT, "random features to choose from")
    n_rows: int = _setting(5000, COUNT, "rows on which features are chosen")
    refine: int = _setting(300, WHOLE, "gradient steps on the chosen features")
    scoring: str = _setting(
        "auto", SCORING, "what models are judged by (auto: accuracy, or r2 of numbers)"
    )
    class_weight: str | None = _setting(
        None, CLASS_WEIGHT, "let rare classes count as much as common ones"
    )
    label_weight: float = _setting(LABEL_WEIGHT, NOT_NEGATIVE, "weight of compressed-labels")
    methods: list[str] = _setting(
        lambda: [*list(METHODS)[:-1], *NEIGHBOURS], METHOD_NAMES, "methods to compare"
    )
    compare_rows: int | str = _setting("auto", AUTO_COUNT, "rows the compared maps learn from")
    compare_test_rows: int | str = _setting("auto", AUTO_COUNT, "held-out rows they are tried on")
    method: str = _setting(
        "auto", METHOD, "map of the final model (auto: learned, with its own linear model)"
    )
    learner: str = _setting("auto", LEARNER, "final model (auto: logistic of learned, else svm)")
    loss: str = _setting("auto", LOSS, "loss of the learner sgd")
    alpha: float | str = _setting("auto", _or(POSITIVE, "auto"), "penalty of the final model")
    C: float | None = _setting(
        None, _or(POSITIVE, None), "sets alpha to 1 / (C rows), except for ridge"
    )
    calibration: str | None = _setting(
        None, CALIBRATION, "learn probabilities of the final model on a tenth of the training rows"
    )
    epochs: int | str = _setting(
        "auto", AUTO_COUNT, "passes over the training rows (auto: 3; learned: more of few rows)"
    )

    def __post_init__(self) -> None:
        for known in fields(self):
            object.__setattr__(self, known.name, check(known.name, getattr(self, known.name)))
        if self.method in METHODS and self.method not in self.methods:
            object.__setattr__(self, "methods", [*self.methods, self.method])
        if self.C is not None and self.alpha != "auto":
            raise SettingsError("C and alpha both set the penalty: give one of them.")
        if self.C is not None and self.learner == "ridge":
            raise SettingsError("C is no penalty of learner=ridge: give alpha.")
        if self.loss != "auto" and self.learner not in ("auto", "sgd"):
            raise SettingsError(f"loss={self.loss} is for learner=sgd, not for {self.learner}.")
        if self.method == "learned" and self.learner == "ridge":
            raise SettingsError(
                "method=learned trains its own linear model step by step, which learner=ridge is "
                "not: use logistic, svm or sgd."
            )

    @property
    def learns_features(self) -> bool:
        """Whether the features of the final model learn with it: so unless it is otherwise said.

        A map alone may have no labels to learn from, and ridge is solved on features that stay.
        """
        chosen = self.method == "auto" and self.learner not in ("none", "ridge")
        return chosen or self.method == "learned"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return asdict(self)

    def asked(self) -> dict[str, Any]:
        """Return the seed and what is no default: what a run is to be asked for again."""
        values = self.to_dict().items()
        return {k: v for k, v in values if k == "random_state" or v != default_of(k)}


def renamed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of settings by the names they have now."""
    return {RENAMED.get(name, name): value for name, value in record.items()}


def kind_of(name: str) -> Kind:
    """Return what a setting takes."""
    return Settings.__dataclass_fields__[name].metadata["kind"]


def about(name: str) -> str:
    """Return the meaning of a setting, with the words it takes."""
    said: str = Settings.__dataclass_fields__[name].metadata["about"]
    words = kind_of(name).choices
    return f"{said}: {', '.join(words)}" if len(words) > 1 else said


def default_of(name: str) -> Any:
    """Return the default of a setting."""
    known = Settings.__dataclass_fields__[name]
    return known.default if known.default_factory is MISSING else known.default_factory()


def describe() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting."""
    names = [known.name for known in fields(Settings)]
    return [(name, show(default_of(name)), about(name)) for name in names]


def show(value: Any) -> str:
    """Return a value as it would be written after ``--set key=``."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):  # as TOML has it in one line
        pairs = (f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _inline(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else show(value)


def check_name(name: str, where: str) -> str:
    """Return the name of a setting, or raise with the nearest one."""
    name = name.strip().replace("-", "_")
    known = [f.name for f in fields(Settings)]
    if name in known:
        return name
    if name in RENAMED:
        raise SettingsError(f"{where}: {name} is called {RENAMED[name]} now.")
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
        found[name] = from_text(name, text)
    return found


def from_text(name: str, text: str) -> Any:
    """Read the value of a setting as it is typed."""
    return check(name, _read_text(text.strip()))


def from_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file of settings; keys at its top or in a table ``[run]``."""
    place = os.fspath(path)
    try:
        with faults_as(
            lambda why: SettingsError(f"{place} is no TOML file: {why}."), FileNotFoundError
        ):
            table = read_toml(Path(path), CONFIG_BYTES)
    except FileNotFoundError:
        raise SettingsError(f"There is no file {place}: give a TOML file.") from None
    inner = table.pop("run", {})
    if not isinstance(inner, dict):
        raise SettingsError(f"{place}: 'run' must be a table, [run].")
    return from_mapping(table | inner, place)


def from_mapping(values: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Check names and values of settings given as a mapping."""
    named = {check_name(name, where): value for name, value in values.items()}
    return {name: check(name, value) for name, value in named.items()}


def check(name: str, value: Any) -> Any:
    """Return the value of a setting in its own type, or say what it takes."""
    kind = kind_of(name)
    try:
        return kind.read(value)
    except SettingsError:  # it says more than the kind knows
        raise
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise SettingsError(
            f"{name}={show(value)[:200]} cannot be used; it is {kind.takes} ({about(name)})."
        ) from None


def _read_text(text: str) -> Any:
    """Read what stands after the equals sign: a number, a truth value, none, or words."""
    if text.lower() in ("none", "null", ""):
        return None
    try:
        return parse_toml(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number of too many digits
        return text

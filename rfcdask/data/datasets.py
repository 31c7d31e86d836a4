"""Known data sets: a recipe for each, and how they are downloaded and written to a store."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from dask.base import compute

from rfcdask.data.columns import first_names
from rfcdask.data.dataset import Dataset
from rfcdask.data.download import download, pooch_or_error
from rfcdask.data.errors import DataError, faults_of
from rfcdask.data.ingest import ingest
from rfcdask.data.location import Location
from rfcdask.data.manifest import content_checksum
from rfcdask.data.store import open_location
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import check_zip, faults_as, read_toml

RECIPE_BYTES = 2**20
_HEAD_BYTES = 2**20  # most bytes of a name, or of other headers, of a member of a tar archive
_TEXT_BYTES = 2**28  # most bytes of a table of numbers, which is read as a whole
LAYOUT_OPTIONS = {
    "block_size", "compressor", "overwrite", "random_state", "shuffle", "sparse", "storage_options",
}  # fmt: skip
"""Options of `ingest` that leave the rows what they are."""
_RECIPE_OPTIONS = signature(ingest).parameters.keys() - {
    "source", "dest", "check", "client", "progress",
}  # fmt: skip


class OtherRowsError(DataError):
    """A store holds other rows than its recipe says."""


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
    content: str | None = None  # checksum of the rows, whatever file they come in


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

    def check_content(self, part: str, dataset: Dataset) -> None:
        """Compare the rows of a written store with the checksum, where the recipe has one."""
        if dataset.y is None:
            return
        sums = [p.content for p in self.chosen(part)]
        X, y = dataset.X, dataset.y
        blocks = (compute(X.blocks[k], y.blocks[k]) for k in range(X.numblocks[0]))
        found = content_checksum(blocks, dataset.attrs["scale"])
        if found != sum(int(known, 16) for known in sums if known) % 2**64:
            raise OtherRowsError(
                f"the rows are not those of {self.name} ({part}), although there are as many: "
                f"their checksum is {found:016x}, so the store was removed; give the file from "
                f"{self.home}."
            )

    @property
    def verified(self) -> str:
        """What there is a checksum of: "rows", "file" or "nothing"."""
        parts = self.parts.values()
        if all(p.content for p in parts):
            return "rows"
        return "file" if all(all(p.sha256) for p in parts) else "nothing"


def _shown(classes: Any) -> str:
    return f"[{first_names(list(map(str, classes or ())), 12)}]"


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
        data = read_toml(path, RECIPE_BYTES)
        parts = {part: _part(values) for part, values in data.pop("parts").items()}
        classes, columns = tuple(data.pop("classes")), _whole(data.pop("columns"))
        if not parts:
            raise ValueError("there are no parts")
        for option in dict(data.get("ingest", {})).keys() - _RECIPE_OPTIONS:
            raise ValueError(f"{option!r} is no option that recipes have")
        return Recipe(name=name, parts=parts, classes=classes, columns=columns, **data)


def _part(values: dict[str, Any]) -> Part:
    urls = tuple(values.pop("urls"))
    files = tuple(values.pop("files", [url.rpartition("/")[2] for url in urls]))
    sums = tuple(values.pop("sha256", [None] * len(urls)))
    made = Part(urls=urls, files=files, sha256=sums, **values)
    if not len(urls) == len(files) == len(sums):
        raise ValueError(f"there are {len(urls)} urls, {len(files)} files and {len(sums)} sha256")
    for name in filter(None, (*files, made.member, made.label_member)):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} leads out of the folder of downloads")
    return replace(made, rows=_whole(made.rows))


def _whole(number: Any) -> int:
    if type(number) is not int or number < 1:
        raise ValueError(f"{number!r} is no number of rows or columns")
    return number


def fetch(
    name: str,
    dest: str | os.PathLike[str] | None = None,
    *,
    part: str | None = None,
    source: Any = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Any = None,
    client: Any = None,
    **options: Any,
) -> Dataset:
    """Download a known data set, write it to a store and check it against its recipe.

    Parameters
    ----------
    name : str
        One of the recipes: adult, covtype, criteo, higgs, human, mnist, sensorless.
    dest : path or URL, optional
        The store; by default ``<name>.zarr`` in the current directory. One that is there and fits
        the recipe is opened as it is.
    part : {"train", "test", "all"}, optional
        Which rows; by default all of them, or those that the name of `source` says.
    source : path or list of paths, optional
        Files that are already here, instead of the download.
    cache : path, optional
        Folder of downloads; by default that of the user. Downloads go on where they stopped.
    progress, client, **options
        As in :func:`rfcdask.ingest`; options override those of the recipe.

    Returns
    -------
    Dataset
        The opened store.

    Raises
    ------
    DataError
        When rows, columns, classes or the checksum of a file differ from the recipe; nothing is
        written then. When the checksum of the written rows does.

    Warns
    -----
    UserWarning
        When the recipe has no checksum for what is read: then only its shape and classes are known.
    """
    recipe = load_recipe(name)
    part = part or _guess_part(recipe, source)
    chosen = recipe.chosen(part)
    place = dest or f"{name}.zarr"
    if not options.get("overwrite"):
        known = _existing(recipe, part, Location.of(place, options.get("storage_options")))
        if known is not None:
            return known
    folder = Path(pooch_or_error().os_cache("rfcdask")) if cache is None else Path(cache)
    files = _files(recipe, chosen, source, folder, progress)
    rows_known = all(p.content for p in chosen) and not options.keys() - LAYOUT_OPTIONS
    if not rows_known and not _published(recipe, chosen, files):
        warnings.warn(
            f"{recipe.name} ({part}) is not compared with a published checksum: of "
            f"{', '.join(dict.fromkeys(file.name for file in files))} only rows, columns and "
            f"classes are checked; compare it with {recipe.home}.",
            stacklevel=2,
        )
    made = dict(recipe.ingest)
    if recipe.format == "svmlight":
        made |= {"format": "svmlight", "n_columns": recipe.columns}
    elif recipe.format == "csv":
        made |= {"format": "csv"}
    if not all(p.labels for p in chosen):
        made["label"] = False
    dataset = ingest(
        _prepared(recipe, chosen, files, folder),
        place,
        **(made | options),
        check=lambda found: recipe.check(
            part, found.n_rows, found.n_columns, found.labels and found.labels.classes
        ),
        progress=progress,
        client=client,
    )
    if rows_known:
        try:
            recipe.check_content(part, dataset)
        except OtherRowsError:
            # The same call again would open it as what it is not.
            Location.to_write(place, options.get("storage_options")).delete(last="zarr.json")
            raise
    return dataset


def _guess_part(recipe: Recipe, source: Any) -> str:
    """Take the part whose file has the name of the source, else the default or the first one."""
    if source is None:
        return recipe.default
    given = source if isinstance(source, list | tuple) else [source]
    if len(given) > 1:
        return "all"
    stem = _plain_name(os.fspath(given[0]))
    for part, values in recipe.parts.items():
        if stem in map(_plain_name, values.files):
            return part
    return next(iter(recipe.parts))


def _plain_name(path: str) -> str:
    name = path.rpartition("/")[2]
    for ending in (".gz", ".bz2", ".xz", ".svm", ".svmlight", ".libsvm"):
        name = name.removesuffix(ending)
    return name


def _existing(recipe: Recipe, part: str, location: Location) -> Dataset | None:
    try:
        dataset = open_location(location)
    except DataError:
        return None
    attrs, projection = dataset.attrs, dataset.projection
    columns = dataset.shape[1] if projection is None else projection.n_columns
    recipe.check(part, attrs["n_rows"] + attrs["dropped_rows"], columns, attrs["classes"])
    return dataset


def _files(
    recipe: Recipe, chosen: list[Part], source: Any, folder: Path, progress: Any
) -> list[Path]:
    """Return the files of the chosen parts, one per part."""
    if source is None:
        try:
            return [
                download(url, file, folder, checksum, progress)
                for p in chosen
                for url, file, checksum in zip(p.urls, p.files, p.sha256, strict=True)
            ]
        except DataError as error:
            names = " and ".join(dict.fromkeys(map(_wanted, chosen)))
            raise DataError(f"{recipe.name} needs {names} of {recipe.home}: {error}") from error
    files = [Path(p) for p in (source if isinstance(source, list | tuple) else [source])]
    if len(files) == 1 and len(chosen) > 1 and len({p.files for p in chosen}) == 1:
        files = files * len(chosen)  # one archive holds all parts
    for file in files:
        if not file.exists():
            raise DataError(f"{file} does not exist: give the path of {recipe.name}'s file.")
    return files


def _wanted(part: Part) -> str:
    """Return the names of the files of a part, with their checksums."""
    pairs = zip(part.files, part.sha256, strict=True)
    return ", ".join(f"{file} (SHA-256 {known})" if known else file for file, known in pairs)


def _published(recipe: Recipe, chosen: list[Part], files: list[Path]) -> bool:
    """Tell whether all files are those that the recipe has a checksum of.

    A file of the same kind that is another one is refused; one that was unpacked cannot be told.
    """
    wanted = [pair for p in chosen for pair in zip(p.files, p.sha256, strict=True)]
    if len(files) != len(wanted) or not all(known for _, known in wanted):
        return False
    for file, (name, known) in set(zip(files, wanted, strict=True)):
        if file.suffix != Path(name).suffix:
            return False
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != known:
            raise DataError(
                f"{file} is not {name} of {recipe.home}: its SHA-256 is {found} and not {known}; "
                "get it again, or give it unpacked."
            )
    return True


def _prepared(recipe: Recipe, chosen: list[Part], files: list[Path], folder: Path) -> Any:
    """Take members out of archives, and return what ingest can read."""
    if len(files) != len(chosen):
        return [str(file) for file in files]
    pairs = [
        _unpacked(p, file, folder / recipe.name) for p, file in zip(chosen, files, strict=True)
    ]
    if recipe.format != "whitespace":
        return [str(rows) for rows, _ in pairs]
    X = np.concatenate([_load(rows) for rows, _ in pairs])
    labels = [_load(path)[:, 0].astype(np.int64) for _, path in pairs if path is not None]
    return X, np.concatenate(labels)


def _unpacked(part: Part, file: Path, folder: Path) -> tuple[Path, Path | None]:
    if part.member is None or not (zipfile.is_zipfile(file) or _is_tar(file)):
        return file, None  # no archive, or the member itself was given
    label = None if part.label_member is None else _extract(file, part.label_member, folder)
    return _extract(file, part.member, folder), label


class _Header(tarfile.TarInfo):
    """A header of a tar archive, none of which is large: they are unpacked as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        names = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
        attributes = tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE
        if found.type in (*names, *attributes) and found.size > _HEAD_BYTES:
            raise ValueError(f"a header in it has {found.size:,} bytes")
        return found


def _is_tar(file: Path) -> bool:
    with faults_of(file, "archive"):
        try:
            tarfile.open(file, tarinfo=_Header).close()
        except tarfile.TarError:
            return False
        return True


def _extract(archive: Path, member: str, folder: Path) -> Path:
    facts = archive.stat()
    # Of each archive a folder of its own: another one may hold members of the same name.
    mark = zlib.crc32(f"{archive.absolute()} {facts.st_size} {facts.st_mtime_ns}".encode())
    target = folder / f"{mark:08x}" / member
    if target.exists():
        return target
    with faults_of(archive, "archive"), atomic_file(target, lasting=False) as file:
        try:
            _copy_member(archive, member, file)
        except KeyError:
            raise DataError(f"{archive} has no member {member!r}: it is another archive.") from None
    return target


def _copy_member(archive: Path, member: str, out: IO[bytes]) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            check_zip(packed)
            with packed.open(member) as data:
                shutil.copyfileobj(data, out, 2**20)
        return
    with tarfile.open(archive, tarinfo=_Header) as tar:
        found = tar.extractfile(member)
        if found is None:
            raise KeyError(member)
        if any(info.issparse() for info in tar.getmembers()):  # they may declare any size
            raise ValueError("it holds sparse files")
        with found:
            shutil.copyfileobj(found, out, 2**20)


def _load(path: Path) -> Any:
    with faults_as(lambda why: DataError(f"{path}: {why}.")):
        if (size := path.stat().st_size) > _TEXT_BYTES:
            raise ValueError(f"it has {size:,} bytes, and at most {_TEXT_BYTES:,} are read")
        return np.loadtxt(path, ndmin=2)

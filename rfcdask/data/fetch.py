"""Fetch: a known data set from its official address (or a file already here) to a store."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from rfcdask.data.catalog import Part, Recipe, load_recipe
from rfcdask.data.dataset import Dataset
from rfcdask.data.download import download
from rfcdask.data.errors import DataError, missing_extra
from rfcdask.data.ingest import ingest
from rfcdask.data.location import Location
from rfcdask.data.store import open_location
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import faults_as


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
        When rows, columns or classes differ from the recipe; nothing is written then.
    """
    recipe = load_recipe(name)
    part = part or _guess_part(recipe, source)
    recipe.chosen(part)
    location = Location.of(dest or f"{name}.zarr", options.get("storage_options"))
    known = None if options.get("overwrite") else _existing(recipe, part, location)
    if known is not None:
        return known
    folder = Path(cache) if cache is not None else _default_cache()
    files = _files(recipe, part, source, folder, progress)
    return ingest(
        _prepared(recipe, part, files, folder),
        dest or f"{name}.zarr",
        **_options(recipe, part, options),
        check=partial(recipe.check_survey, part),
        progress=progress,
        client=client,
    )


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
    attrs = dataset.attrs
    projection = dataset.projection
    columns = dataset.shape[1] if projection is None else projection.n_columns
    n_rows = attrs["n_rows"] + attrs["dropped_rows"]
    recipe.check(part, n_rows, columns, attrs["classes"])
    return dataset


def _default_cache() -> Path:
    try:
        import pooch
    except ImportError:
        raise missing_extra("pooch", "fetch", "Downloading data sets") from None
    return Path(pooch.os_cache("rfcdask"))


def _files(recipe: Recipe, part: str, source: Any, folder: Path, progress: Any) -> list[Path]:
    """Return the files of the chosen parts, one a part."""
    chosen = recipe.chosen(part)
    if source is None:
        return [
            download(url, file, folder, checksum, progress)
            for p in chosen
            for url, file, checksum in zip(p.urls, p.files, p.sha256, strict=True)
        ]
    files = [Path(p) for p in (source if isinstance(source, list | tuple) else [source])]
    if len(files) == 1 and len(chosen) > 1 and len({p.files for p in chosen}) == 1:
        files = files * len(chosen)  # one archive holds all parts
    for file in files:
        if not file.exists():
            raise DataError(f"{file} does not exist: give the path of {recipe.name}'s file.")
    return files


def _prepared(recipe: Recipe, part: str, files: list[Path], folder: Path) -> Any:
    """Take members out of archives, and return what ingest can read."""
    chosen = recipe.chosen(part)
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
    if part.member is None:
        return file, None
    if not (zipfile.is_zipfile(file) or tarfile.is_tarfile(file)):
        return file, None  # the member itself was given
    label = None if part.label_member is None else _extract(file, part.label_member, folder)
    return _extract(file, part.member, folder), label


def _extract(archive: Path, member: str, folder: Path) -> Path:
    facts = archive.stat()
    # Of each archive a folder of its own: another one may hold members of the same name.
    mark = zlib.crc32(f"{archive.absolute()} {facts.st_size} {facts.st_mtime_ns}".encode())
    target = folder / f"{mark:08x}" / member
    if target.exists():
        return target
    damage = faults_as(
        lambda why: DataError(f"{archive} is cut short or damaged ({why}): get it again."),
        DataError,
    )
    copy = _copy_zip if zipfile.is_zipfile(archive) else _copy_tar
    with damage, atomic_file(target, lasting=False) as file:
        try:
            copy(archive, member, file)
        except KeyError:
            raise DataError(f"{archive} has no member {member!r}: it is another archive.") from None
    return target


def _copy_zip(archive: Path, member: str, out: IO[bytes]) -> None:
    with zipfile.ZipFile(archive) as packed, packed.open(member) as data:
        shutil.copyfileobj(data, out, 2**20)


def _copy_tar(archive: Path, member: str, out: IO[bytes]) -> None:
    with tarfile.open(archive) as packed:
        data = packed.extractfile(member)
        if data is None:
            raise KeyError(member)
        with data:
            shutil.copyfileobj(data, out, 2**20)


def _load(path: Path) -> Any:
    with faults_as(lambda why: DataError(f"{path}: {why}.")):
        return np.loadtxt(path, ndmin=2)


def _options(recipe: Recipe, part: str, given: dict[str, Any]) -> dict[str, Any]:
    options = dict(recipe.ingest)
    if recipe.format == "svmlight":
        options |= {"format": "svmlight", "n_columns": recipe.columns}
    elif recipe.format == "csv":
        options |= {"format": "csv"}
    if not all(p.labels for p in recipe.chosen(part)):
        options["label"] = False
    return options | given

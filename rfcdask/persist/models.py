"""Saved models: a folder with one JSON file and one zarr group, never pickle.

``model.json`` holds the class, its parameters, the numbers that were learned, the version of the
package, the seed and a format number; ``arrays.zarr`` holds the learned arrays, each chunk with a
checksum and each array with a digest in ``model.json``. What a folder claims is checked before it
is believed: a model may come from anybody. A folder is written beside its final name and moved
there whole, so a model that can be seen is complete. A pipeline is a folder of such folders, one a
step, with a ``model.json`` that names them in order.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from rfcdask._version import __version__
from rfcdask.kernels.arrays import Array, is_sparse
from rfcdask.persist.chunks import Packing, check_zarr
from rfcdask.persist.files import (
    atomic_folder,
    disk_errors,
    exclusive_lock,
    follow_link,
    local_path,
    lock_path,
    refuse_others,
    require_flag,
)
from rfcdask.persist.state import check_head, check_state, checked_steps, decode, encode, text_array
from rfcdask.persist.untrusted import (
    faults_as,
    read_json,
    require_memory,
    require_open,
    require_plain,
)

FORMAT = 2  # raised whenever older versions could not read what is written; 2 knows pipelines
_JSON, _ARRAYS, _STEP = "model.json", "arrays.zarr", "step"
_OWN = (_JSON, _ARRAYS, f"{_STEP}-[0-9]*")
TRIALS = 3  # how often a model is read again that another took the place of meanwhile
PERSISTABLE = {
    "RandomFeatures": "rfcdask.features.baselines",
    "CompressedFeatures": "rfcdask.features.compressed",
    "JLFeatures": "rfcdask.features.baselines",
    "NystroemFeatures": "rfcdask.features.baselines",
    "LearnedFeatures": "rfcdask.features.base",
    "KernelClassifier": "rfcdask.linear.kernel.estimators",
    "KernelRegressor": "rfcdask.linear.kernel.estimators",
    "SGDClassifier": "rfcdask.linear.sgd.estimators",
    "SGDRegressor": "rfcdask.linear.sgd.estimators",
    "Ridge": "rfcdask.linear.ridge",
    "RidgeClassifier": "rfcdask.linear.ridge",
    "Standardizer": "rfcdask.linear.transform",
    "TableEncoder": "rfcdask.data.tables.encoder",
    "PCA": "rfcdask.linear.transform",
    "Moments": "rfcdask.linear.moments",
    "Calibration": "rfcdask.linear.rows",
    "ErrorPath": "rfcdask.features.compressed",
    "RefinePath": "rfcdask.features.compressed",
    # Those of scikit-learn whose state is plain arrays; others keep private state of any kind.
    "StandardScaler": "sklearn.preprocessing",
    "MinMaxScaler": "sklearn.preprocessing",
    "MaxAbsScaler": "sklearn.preprocessing",
    "RobustScaler": "sklearn.preprocessing",
}
"""The classes that may be saved and their modules: only these are ever made from a file."""


class DamagedModelError(ValueError):
    """A file of a saved model is missing, damaged or of another model."""


def save(
    obj: Any,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    about: dict[str, Any] | None = None,
) -> None:
    """Write a fitted feature map, model or pipeline of them to a folder.

    Parameters
    ----------
    obj : estimator of this package, or scikit-learn Pipeline of such
    path : path
        A folder that does not exist yet.
    overwrite : bool, default=False
        Whether an existing saved model there may be replaced.
    about : dict, optional
        Anything JSON can hold that should stay with the model, such as where its data came from;
        :func:`describe` gives it back.
    """
    _check_class(obj)
    require_flag("overwrite", overwrite)
    target = follow_link(local_path(path))
    _require_free(target, overwrite)
    other = FileExistsError(f"another process is saving {target}: wait for it.")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_path(Path(os.path.realpath(target)))
        with exclusive_lock(lock, other), atomic_folder(target, _OWN) as work:
            _require_free(target, overwrite)  # nobody else puts one there from now on
            _write(obj, work, about)


def _require_free(target: Path, overwrite: bool) -> None:
    if os.path.exists(target) and not (overwrite and _is_model(target)):
        how = ", or pass overwrite=True." if _is_model(target) else ": it is not a saved model."
        raise FileExistsError(f"{target} exists already; choose another path{how}")


def refuse_files_of_others(path: str | os.PathLike[str]) -> None:
    """Refuse to replace a model in whose folder somebody put files of theirs, such as results."""
    if _is_model(folder := local_path(path)):
        refuse_others(folder, _OWN)


def saved_class(name: str) -> Callable[..., Any]:
    """Return the class of that name; it is imported only when a file asks for it."""
    return getattr(import_module(PERSISTABLE[name]), name)


def _is_pipeline(obj: Any) -> bool:
    """Tell whether this is scikit-learn's Pipeline, whose steps are saved one by one."""
    from sklearn.pipeline import Pipeline

    return type(obj) is Pipeline


def _check_class(obj: Any, where: str = "") -> None:
    """Raise a TypeError that lists what can be saved when `obj` is none of it."""
    if _is_pipeline(obj):
        for name, step in obj.steps:
            _check_class(step, f" (step {name!r} of the pipeline)")
        return
    name = type(obj).__name__
    if name not in PERSISTABLE or saved_class(name) is not type(obj):
        encodes = "Encoder" in name or "Imputer" in name or name == "ColumnTransformer"
        instead = "take rfcdask.TableEncoder in its place" if encodes else "save"
        raise TypeError(
            f"Cannot save a {name}{where} without pickle; {instead}"
            f"{', or' * encodes} one of {', '.join(PERSISTABLE)}, or a Pipeline of them."
        )


def load(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote.

    Raises
    ------
    FileNotFoundError
        When there is no saved model at that path.
    ValueError
        When the model was written in a newer format, or a file of it is damaged or missing.
    """
    folder = local_path(path)
    for _ in range(TRIALS):
        seen = folder_identity(folder)
        try:
            return _load(folder)
        except (DamagedModelError, FileNotFoundError):
            if folder_identity(folder) == seen:
                raise
    return _load(folder)


def folder_identity(folder: Path) -> tuple[int, int] | None:
    """Return what changes when another model takes the place of a folder."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _load(folder: Path, checksum: str | None = None) -> Any:
    """Read a model, the one with this checksum where it is a step of a pipeline."""
    record = _checked_record(folder, checksum)
    with _damage_of(folder / _JSON):
        if record["class"] == "Pipeline":
            return _load_pipeline(record, folder)
        kind = saved_class(record["class"])
        parameters = {name: decode(value) for name, value in record["parameters"].items()}
        if "checkpoint" in parameters:
            parameters["checkpoint"] = None  # of older versions, or of a stranger
        obj = kind(**parameters)
        for name, given in signature(kind).parameters.items():
            if isinstance(given.default, tuple):  # which JSON makes a list of
                obj.set_params(**{name: tuple(getattr(obj, name))})
        state = {
            name: _read_learned(name, value, folder) for name, value in record["state"].items()
        }
        check_state(obj, state)
        for name, value in state.items():
            setattr(obj, name, value)
    return obj


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a saved model says of itself, without its arrays.

    Returns
    -------
    dict
        ``class``, ``version``, ``format``, ``seed``, ``about`` and ``parameters``, or the same of
        each of the ``steps`` of a pipeline.
    """
    folder = local_path(path)
    record = _checked_record(folder)
    kept = ("class", "version", "format", "seed", "about", "parameters")
    shown = {key: record[key] for key in kept if key in record}
    with _damage_of(folder / _JSON):
        if record["class"] == "Pipeline":
            shown["steps"] = {name: describe(place) for name, place, _ in _steps(record, folder)}
    return shown


def _checked_record(folder: Path, checksum: str | None = None) -> dict[str, Any]:
    if not _is_model(folder):
        raise FileNotFoundError(f"{folder} is not a saved rfcdask model: it has no {_JSON}.")
    record = _read_record(folder / _JSON)
    if record["format"] > FORMAT:
        raise ValueError(
            f"{folder} has model format {record['format']}, written by rfcdask "
            f"{record.get('version')}; this is rfcdask {__version__}, which reads up to format "
            f"{FORMAT}: upgrade rfcdask."
        )
    found = record.pop("checksum", None)
    if found != _checksum(record) or checksum not in (None, found):
        raise _damaged(folder / _JSON, "its checksum is that of another content")
    with _damage_of(folder / _JSON):
        check_head(record, {"Pipeline", *PERSISTABLE})
    return record


def _load_pipeline(record: dict[str, Any], folder: Path) -> Any:
    from sklearn.pipeline import Pipeline

    # Another model may take the place of this one meanwhile: its steps are not those of the first.
    steps = [(name, _load(place, checksum)) for name, place, checksum in _steps(record, folder)]
    return Pipeline(checked_steps(steps))


def _steps(record: dict[str, Any], folder: Path) -> list[tuple[str, Path, str]]:
    """Return names, folders and checksums of a pipeline's steps, which are its own."""
    steps = []
    for index, step in enumerate(record["steps"]):
        place = folder / f"{_STEP}-{index}"
        if step["folder"] != place.name:
            raise ValueError(f"{step['folder']!r} is no folder of a step")
        # As every record holds the checksums of those within it, none can hold itself; and without
        # links none is read twice, as two to one folder, which has two to the next, would be.
        found = not os.path.islink(place) and _is_model(place)
        if not found or _read_record(place / _JSON).get("checksum") != step["checksum"]:
            raise ValueError(f"{place.name} is missing, a link or a step of another pipeline")
        steps.append((str(step["name"]), place, str(step["checksum"])))
    if not steps:
        raise ValueError("it is a pipeline without steps")
    return steps


def _damage_of(what: Any) -> AbstractContextManager[None]:
    """Say of every fault in the block what is damaged by it."""
    return faults_as(lambda why: _damaged(what, why), DamagedModelError)


def _damaged(what: Any, why: str) -> DamagedModelError:
    why = why.partition(" Stored:")[0].rstrip(".")  # the bytes that differ may follow
    return DamagedModelError(f"{what} is damaged: {why}; save the model again, or restore a copy.")


def _read_learned(name: str, value: Any, folder: Path) -> Any:
    """Only learned names are set, never methods or what Python itself looks up."""
    if name.startswith("_") or not name.endswith("_"):
        raise ValueError(f"{name!r} is not the name of a learned value")
    return _read_value(value, folder)


def _is_model(folder: Path) -> bool:
    require_open(folder)
    return os.path.isfile(folder / _JSON)  # False also for names that no file can have


def _write(obj: Any, folder: Path, about: dict[str, Any] | None = None) -> str:
    """Write a model to a folder and return its checksum."""
    head = {"format": 1, "version": __version__, "class": type(obj).__name__}
    body = _write_steps(obj, folder) if _is_pipeline(obj) else _write_parts(obj, folder)
    record = head | body | ({} if about is None else {"about": about})
    record = json.loads(json.dumps(record, allow_nan=True))  # as it will be read
    record["checksum"] = _checksum(record)
    (folder / _JSON).write_text(json.dumps(record, indent=1, allow_nan=True) + "\n")
    return str(record["checksum"])


def _write_steps(pipeline: Any, folder: Path) -> dict[str, Any]:
    steps = []
    for index, (name, step) in enumerate(pipeline.steps):
        place = folder / f"{_STEP}-{index}"
        place.mkdir()
        steps.append({"name": name, "folder": place.name, "checksum": _write(step, place)})
    return {"format": 2, "steps": steps}


def _write_parts(obj: Any, folder: Path) -> dict[str, Any]:
    store = zarr.open_group(folder / _ARRAYS, mode="w")
    state = {
        name: _write_value(store, name, value)
        for name, value in vars(obj).items()
        if name.endswith("_") and not name.startswith("_")
    }
    parameters = {k: encode(k, v) for k, v in obj.get_params(deep=False).items()}
    return {"seed": getattr(obj, "seed_", None), "parameters": parameters, "state": state}


def _checksum(record: dict[str, Any]) -> str:
    """Return the digest of a record's content, whatever its spaces and order."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _write_value(group: zarr.Group, name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _write_array(group, name, value)
    if is_sparse(value):
        value = sp.csr_array(value)
        parts = [
            _write_array(group, f"{name}{part}", getattr(value, part))
            for part in ("data", "indices", "indptr")
        ]
        return {"csr": parts, "shape": list(value.shape)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        record = {field: _write_value(group, name + field, item) for field, item in fields}
        return {"tuple": type(value).__name__, "fields": record}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} holds values that are not finite; fit the model again.")
    return {"value": encode(name, value)}


def _write_array(group: zarr.Group, name: str, values: Array) -> Any:
    if values.dtype.kind in "OUS":
        if not all(isinstance(item, (str, np.str_)) for item in values.ravel()):
            raise ValueError(f"{name} holds objects that cannot be saved without pickle.")
        listed = values.tolist()
        if text_array(listed).tolist() != listed:  # numpy's ends at its last sign that is no NUL
            raise ValueError(f"{name} holds text that ends in NUL, which would be lost.")
        return {"strings": listed}
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} holds {values.dtype}, and models hold numbers and text: fit on labels of "
            "these, for instance y.astype(str)."
        )
    if not _is_finite(values):
        raise ValueError(f"{name} holds values that are not finite; fit the model again.")
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=tuple(max(n, 1) for n in values.shape) if values.nbytes < 2**24 else "auto",
        filters=None,
        serializer=BytesCodec(),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        config={"write_empty_chunks": True},  # a chunk that is not there has been lost
    )
    array[...] = values
    shape, dtype = list(values.shape), values.dtype.str
    return {"array": name, "shape": shape, "dtype": dtype, "sha256": _digest(values)}


def _is_finite(values: Array) -> bool:
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())


def _digest(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    with _damage_of(path):
        record = read_json(path)
        if type(record["format"]) is not int or record["format"] < 1:
            raise ValueError(f"format {record['format']!r} is none that was ever written")
        return dict(record)


def _read_value(value: dict[str, Any], folder: Path) -> Any:
    if "array" in value:
        return _read_array(folder, value)
    if "strings" in value:
        return text_array(value["strings"])
    if "csr" in value:
        parts = [_read_value(part, folder) for part in value["csr"]]
        matrix = sp.csr_array(tuple(parts), shape=tuple(value["shape"]))
        matrix.check_format(full_check=True)  # an index beyond the end would read foreign memory
        return matrix
    if "tuple" in value:
        fields = {name: _read_value(item, folder) for name, item in value["fields"].items()}
        return saved_class(value["tuple"])(**fields)
    return decode(value["value"])


def _read_array(folder: Path, value: dict[str, Any]) -> Array:
    name, shape, dtype = value["array"], tuple(value["shape"]), value["dtype"]
    with _damage_of(f"Array {name!r} in {folder / _ARRAYS}"):
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError("that is no name of an array")  # it might lead to another folder
        place = folder / _ARRAYS / name
        require_plain(place / "zarr.json")
        array = zarr.open_array(place, mode="r", zarr_format=3)
        check_zarr(array)
        codecs = [type(codec) for codec in getattr(array.metadata, "codecs", ())]
        if codecs != [BytesCodec, ZstdCodec, Crc32cCodec]:
            raise ValueError("it is packed in another way than models are")
        if array.shape != shape or array.dtype != np.dtype(dtype):
            raise ValueError(f"it is {array.dtype} {array.shape} and was {dtype} {shape}")
        _check_chunks(array, place)
        values = np.asarray(array[...])
        if value.get("sha256") not in (None, _digest(values)):  # older versions wrote none
            raise ValueError("it holds values of another array")
        if not _is_finite(values):
            raise ValueError("it holds values that are not finite")
    return values


def _check_chunks(array: zarr.Array[Any], place: Path) -> None:
    """Refuse an array that has not all its chunks, or is too large, before it is made."""
    paths = [Path(at, n) for at, _, names in os.walk(place) for n in names if n != "zarr.json"]
    if array.nchunks > len(paths) or array.nchunks_initialized != array.nchunks:
        raise ValueError(f"a chunk is missing: there are {len(paths)} files for {array.nchunks:,}")
    packing = Packing.of(array)
    for path in paths:
        require_plain(path)
        packing.check(path.read_bytes(), exact=True)
    require_memory(array.nbytes, "it has")

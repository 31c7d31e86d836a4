"""Ways to change the bytes of a file, the values in it, or the files of a folder."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
Files = dict[str, bytes]
"""An input: the bytes of its files by their paths."""

_WORDS = [b"0", b"-1", b"1e999", b"nan", b"inf", b"99999999999999999999", b"\x00", b"\xff" * 8, b""]
_WORDS += [b"\n", b"\r", b"\r\n", b",", b'"', b":", b"#", b"1:", b":1", b"../", b"\xef\xbb\xbf"]
_WORDS += [b"2147483648", b"1000000", b"4294967295", b"[" * 200, b"{}", b"null", b"true", b"\x80"]
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    -5,
    2**31,
    2**63,
    10**30,
    1e308,
    float("nan"),
    "",
    "x",
    "../../x",
]
_VALUES += ["/etc/passwd", ".", "|O", "<f8", "<U100000000", "pickle", [], {}, [1], [10**8], "NaN"]


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """Flip, cut, repeat, remove, exchange or insert some bytes."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        a, b = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
        b = min(b, a + draw.choice([1, 4, 30, 1000]))
        c = draw.randrange(len(data) + 1)
        way = draw.randrange(8)
        if way == 0 and data:
            c = draw.randrange(len(data))
            data = data[:c] + bytes([data[c] ^ (1 << draw.randrange(8))]) + data[c + 1 :]
        elif way == 1 and data:
            c = draw.randrange(len(data))
            data = data[:c] + bytes([draw.randrange(256)]) + data[c + 1 :]
        elif way == 2:
            data = data[:c]
        elif way == 3:
            data = data[:b] + data[a:b] * draw.choice([1, 2, 50]) + data[b:]
        elif way == 4:
            data = data[:a] + data[b:]
        elif way == 5:
            data = data[:c] + data[a:b] + data[c:]
        elif way == 6:
            data = data[:a] + draw.choice(_WORDS) + data[b:]
        else:
            data = data[:c] + draw.choice(_WORDS) + data[c:]
    return data


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    """Change, remove, rename or move a value somewhere in JSON."""
    try:
        root = json.loads(data)
    except ValueError:
        return mutate_bytes(data, draw)
    places = list(_places(root))
    for _ in range(draw.choice([1, 1, 2])):
        if not places:
            break
        holder, key = draw.choice(places)
        with contextlib.suppress(KeyError, IndexError):
            _change(holder, key, draw, places)
    return json.dumps(root).encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items) if isinstance(node, dict | list) else []:
        yield node, key
        yield from _places(value) if isinstance(value, dict | list) else ()


def _change(holder: Any, key: Any, draw: random.Random, places: list[tuple[Any, Any]]) -> None:
    way = draw.randrange(6)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[draw.choice(["x", "", "../x", "zarr_format"])] = holder.pop(key)
    elif way == 2 and isinstance(holder[key], int | float):
        holder[key] = draw.choice([holder[key] * 2, holder[key] + 1, -holder[key], 10**9])
    elif way == 3:
        other, place = draw.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))
    elif way == 4:
        holder[key] = [holder[key]]
    else:
        holder[key] = draw.choice(_VALUES)


def mutate_zip(data: bytes, draw: random.Random) -> bytes:
    """Change the members of an archive, whose checksums then are those of the new bytes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = draw.randrange(len(members))
    name, content = members[place]
    way = draw.randrange(6)
    if way == 0:
        del members[place]
    elif way == 1:
        members.append((draw.choice(["../../x.npy", "/x.npy", "X", "y.npy", name]), content))
    elif way == 2:
        members[place] = (draw.choice(["../../x.npy", "z.npy", "/"]), content)
    elif way == 3:
        members[place] = (name, mutate_npy(content, draw))
    else:
        members[place] = (name, mutate_bytes(content, draw))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as out:
        for name, content in members:
            out.writestr(name, content)
    return made.getvalue()


def mutate_npy(data: bytes, draw: random.Random) -> bytes:
    """Write another shape or type into the header of a .npy file, as long as the old one."""
    start, stop = data.find(b"{"), data.find(b"\n")
    if start < 0 or stop < 0:
        return mutate_bytes(data, draw)
    shape = draw.choice([f"({10 ** draw.randrange(14)}, 4)", "(6, 4)", "()", "(-1,)", "(4, 6)"])
    kind = draw.choice(["<f8", "<f4", "|O", "<U3", "|V8", "<c16", ">f8", "<M8[s]", "|b1", "<f2"])
    order = draw.choice(["True", "False", "None"])
    text = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    return data[:start] + text.encode()[: stop - start].ljust(stop - start) + data[stop:]


def mutate_model(files: Files, draw: random.Random) -> Files:
    """Change a value of a model's record and give it the checksum of what it now holds."""
    from rfcdask.persist import models as persist

    path = draw.choice([name for name in files if name.endswith("model.json")])
    changed = json.loads(mutate_json(files[path], draw))
    if isinstance(changed, dict):
        changed.pop("checksum", None)
        changed["checksum"] = persist._checksum(changed)
    return files | {path: json.dumps(changed).encode()}


def mutate(files: Files, draw: random.Random) -> tuple[Files, bool]:
    """Change one file of an input, or which files it has; whether checksums were made anew too."""
    if any(name.endswith("model.json") for name in files) and draw.random() < 0.3:
        return mutate_model(files, draw), True
    return _mutate(files, draw), False


def _mutate(files: Files, draw: random.Random) -> Files:
    if len(files) > 1 and draw.random() < 0.1:
        return _mutate_folder(files, draw)
    path = draw.choice(sorted(files))
    data = files[path]
    chance = draw.random()
    if data[:2] == b"PK" and chance < 0.6:
        return files | {path: mutate_zip(data, draw)}
    if data[:6] == b"\x93NUMPY" and chance < 0.4:
        return files | {path: mutate_npy(data, draw)}
    if data[:1] == b"{" and chance < 0.7:
        return files | {path: mutate_json(data, draw)}
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    ending = Path(path).suffix
    if ending in unpack and chance < 0.3:
        return files | {path: PACKERS[ending](mutate_bytes(unpack[ending](data), draw))}
    return files | {path: mutate_bytes(data, draw)}


def _mutate_folder(files: Files, draw: random.Random) -> Files:
    one, other = draw.sample(sorted(files), 2)
    way = draw.randrange(4)
    if way == 0:
        return {name: data for name, data in files.items() if name != one}
    if way == 1:
        return files | {one: files[other]}
    if way == 2:
        return files | {one: files[other], other: files[one]}
    return files | {one: b""}

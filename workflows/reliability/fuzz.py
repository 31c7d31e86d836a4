"""Mutated files: every one is read rightly, or refused with an error of the package.

    python workflows/reliability/fuzz.py --inputs 200000 --processes 2

Each input is made from a good file (or folder of files) by a random number generator that is seeded
with ``--seed``, the name of the format and the number of the input, so ``--formats npz --first 417
--inputs 1`` makes one of them again. An input passes when what was read is right (see `Format`), or
when the error was raised by the package itself and not by a library below it; it must end within
20 seconds and take less than a gigabyte. Inputs that fail are kept in ``--keep``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from formats import FORMATS, WrongError, is_ours
from mutations import Files, mutate

SECONDS = 20
MORE_MEMORY = 2**30


def prepare(names: list[str], folder: Path) -> None:
    """Make the good files of formats, and read them: what they hold is what is right."""
    for name in names:
        kind = FORMATS[name]
        (folder / name).mkdir()
        kind.goods = kind.make(folder / name)
        shutil.rmtree(folder / name)
        for files in kind.goods:
            place = write_files(files, folder / "good" / name)
            kind.results.append(kind.read(place, random.Random(0)))
            shutil.rmtree(place)


def write_files(files: Files, folder: Path) -> Path:
    """Write an input into a folder that does not exist yet."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_input(name: str, number: int, seed: int) -> tuple[Files, Any, random.Random]:
    """Return an input, what is right for it (None if that is not known), its random numbers."""
    kind = FORMATS[name]
    draw = random.Random(f"{seed} {name} {number}")
    which = draw.randrange(len(kind.goods))
    files, sealed = mutate(kind.goods[which], draw)
    return files, None if sealed or not kind.exact else kind.results[which], draw


def run_input(name: str, number: int, seed: int, folder: Path) -> tuple[str, str]:
    """Read one input; return its outcome (read, refused or a fault) and what was said."""
    files, right, draw = make_input(name, number, seed)
    place = write_files(files, folder / "input" / name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(SECONDS)
    try:
        found = FORMATS[name].read(place, draw)
        if right is not None and not _same(found, right):
            return "wrong", "other values were read"
        outcome = "read", ""
    except WrongError as error:
        return "wrong", str(error)
    except Exception as error:
        if not is_ours(error):
            return type(error).__name__, "".join(traceback.format_exception(error))
        outcome = "refused", str(error)
    finally:
        signal.alarm(0)
        shutil.rmtree(place)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return ("memory", f"{grown:,} bytes") if grown > MORE_MEMORY else outcome


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def limit() -> None:
    """Bound time and memory of this process, and keep its warnings to itself."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def work(parent: Any, names: list[str], seed: int) -> None:
    """Read the spans of inputs that the parent sends, and report each."""
    limit()
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        prepare(names, Path(folder))
        parent.send(None)
        while (span := parent.recv()) is not None:
            name, start, stop = span
            for number in range(start, stop):
                outcome, said = run_input(name, number, seed, Path(folder))
                # Messages quote what the file says, which need not be text that can be sent.
                parent.send((outcome, said.encode("ascii", "backslashreplace").decode()))


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Worker:
    """A process that reads inputs; when it dies or hangs, that is the outcome of its input."""

    def __init__(self, names: list[str], seed: int) -> None:
        self.names, self.seed = names, seed
        self.span = ("", 0, 0)
        self.start()

    def start(self) -> None:
        """Start the process and wait until it has made its good files."""
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=work, args=(theirs, self.names, self.seed))
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def results(self, spans: Iterator[tuple[str, int, int]]) -> Iterator[tuple[str, int, str, str]]:
        """Give format, number, outcome and words of every input of the spans, as they come."""
        for name, start, stop in spans:
            self.pipe.send((name, start, stop))
            for number in range(start, stop):
                outcome, said = self._next()
                yield name, number, outcome, said
                if outcome in ("crashed", "hung"):
                    self.start()
                    self.pipe.send((name, number + 1, stop))
        self.pipe.send(None)
        self.process.join(60)

    def _next(self) -> tuple[str, str]:
        try:
            if self.pipe.poll(3 * SECONDS):
                found: tuple[str, str] = self.pipe.recv()
                return found
        except (EOFError, OSError):
            self.process.join()
            return "crashed", f"exit code {self.process.exitcode}"
        self.process.kill()
        return "hung", f"no answer within {3 * SECONDS} seconds"


FINE = ("read", "refused")


def run_all(options: argparse.Namespace) -> Counter[tuple[str, str]]:
    """Read all inputs, with one thread for each process; keep those that fail."""
    counts: Counter[tuple[str, str]] = Counter()
    share = -(-options.inputs // len(options.formats))
    stop = options.first + share
    spans = iter(
        [
            (name, start, min(start + 50, stop))
            for start in range(options.first, stop, 50)
            for name in options.formats
        ]
    )
    lock = threading.Lock()

    def drive() -> None:
        worker = Worker(options.formats, options.seed)
        for name, number, outcome, said in worker.results(_locked(spans, lock)):
            with lock:
                counts[name, outcome] += 1
                if outcome not in FINE:
                    _keep(options, name, number, outcome, said)

    threads = [threading.Thread(target=drive) for _ in range(options.processes)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        if options.show and int(time.monotonic()) % 60 == 0:
            print(f"{sum(counts.values()):,} inputs", file=sys.stderr, flush=True)
    return counts


def _locked(spans: Iterator[Any], lock: Any) -> Iterator[Any]:
    while True:
        with lock:
            span = next(spans, None)
        if span is None:
            return
        yield span


def _keep(options: argparse.Namespace, name: str, number: int, outcome: str, said: str) -> None:
    """Write down what failed; the input itself is made again from its numbers."""
    folder = Path(options.keep) / f"{name}-{options.seed}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "outcome.txt").write_text(
        f"{outcome}\n{said}\nagain: --formats {name} --seed {options.seed} --first {number} "
        "--inputs 1\n"
    )


def show(counts: Counter[tuple[str, str]], seconds: float) -> str:
    """Return the table of outcomes."""
    others = sorted({outcome for _, outcome in counts} - set(FINE))
    lines = [["format", "inputs", *FINE, *others]]
    for name in FORMATS:
        row = [counts[name, outcome] for outcome in (*FINE, *others)]
        if sum(row):
            lines.append([name, *(f"{n:,}" for n in (sum(row), *row))])
    total = [sum(counts[name, o] for name in FORMATS) for o in (*FINE, *others)]
    lines.append(["all", *(f"{n:,}" for n in (sum(total), *total))])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    ]
    return "\n".join([*table, f"{sum(total) / seconds:.0f} inputs a second"])


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; the exit code tells whether every input passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=2000, help="how many, over all formats")
    parser.add_argument("--first", type=int, default=0, help="number of the first of each format")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--formats", type=lambda text: text.split(","), default=list(FORMATS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default="fuzz-failures", help="folder of what failed")
    parser.add_argument("--show", action="store_true", help="say every minute how far it is")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    counts = run_all(options)
    print(show(counts, time.monotonic() - started))
    return int(any(outcome not in FINE for _, outcome in counts))


if __name__ == "__main__":
    sys.exit(main())

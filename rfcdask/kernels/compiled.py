"""Compiled functions whose cache on disk can neither stop a program nor serve it old code.

numba keeps machine code beside the source and believes it as long as that one file is unchanged. It
does not notice that a function or a class of another file has changed; an index that was cut short,
or names a class of an older version, ends the program, and so does a full disk. Here the code of
other files counts too, and what cannot be read is compiled anew.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core.caching import FunctionCache


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for each signature it is called with; options are those of ``njit``."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        # Without a place for a cache, or the source, each process compiles for itself.
        with suppress(RuntimeError, OSError):
            dispatcher._cache = CompiledCache(function)
        return dispatcher

    return decorate


class CompiledCache(FunctionCache):
    """numba's cache of one function; anything wrong with it means that nothing was found."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self.stamp = _stamp(py_func)
        self._cache_file._source_stamp = self.stamp

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return compiled code, or None where there is none that can be read."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:
            return None
        # Two processes that save at once may both take one file, for different signatures.
        wanted = tuple(getattr(sig, "args", sig))
        return found if found is not None and tuple(found.signature.args) == wanted else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code where that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception:
            with suppress(Exception):  # an index that cannot be read gives way
                self.flush()
                super().save_overload(sig, data)


def _stamp(function: Callable[..., Any]) -> str:
    """Return a digest of all code and constants that the compiled function may have taken in."""
    digest = hashlib.sha256(_source(function.__module__))
    for name, value in sorted(function.__globals__.items()):
        module = str(getattr(value, "__module__", None))
        if isinstance(value, (bool, int, float, str, tuple)) and not name.startswith("__"):
            digest.update(f"{name}={value!r};".encode())
        elif isinstance(cache := getattr(value, "_cache", None), CompiledCache):
            digest.update(cache.stamp.encode())
        elif module != function.__module__ and _root(module) == _root(function.__module__):
            digest.update(_source(module))  # classes, and functions without a cache
    return digest.hexdigest()


def _root(module: str) -> str:
    return module.partition(".")[0]


def _source(module: str) -> bytes:
    with open(str(sys.modules[module].__file__), "rb") as file:
        return file.read()

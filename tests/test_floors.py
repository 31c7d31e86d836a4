"""The versions that ``.ci/lowest`` installs are the lowest that pyproject.toml allows."""

from __future__ import annotations

import ast
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from tests.pages import ROOT

IMPORTED_AS = {"scikit-learn": "sklearn", "google-crc32c": "google_crc32c", "dask[array]": "dask"}
OTHERS_WANT_MORE = {"jinja2", "google-crc32c"}
"""Another package asks for more, or the lowest has no wheel for Python 3.11."""


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(x for e in ("test", "tables", "fetch", "s3") for x in extras[e]),
    ]
    wanted = [Requirement(line) for line in lines]
    pins = dict(
        line.split("==") for line in (ROOT / ".ci" / "lowest.txt").read_text().splitlines() if line
    )
    for requirement in wanted:
        if requirement.name == "rfcdask":
            continue
        pin = Version(pins[requirement.name])
        assert pin in requirement.specifier, requirement
        (floor,) = (Version(part.version) for part in requirement.specifier)
        same = pin.release[: len(floor.release)] == floor.release
        assert same or requirement.name in OTHERS_WANT_MORE, f"{requirement}: {pin} is tested"


def test_what_modules_import_is_installed_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {Requirement(line).name.lower() for line in project["dependencies"]}
    installed = {IMPORTED_AS.get(name, name) for name in names} | {"rfcdask", "packaging"}
    for file in (ROOT / "rfcdask").rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                found = [str(node.module)]
            others = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
            assert others <= installed, f"{file}: {others - installed}"

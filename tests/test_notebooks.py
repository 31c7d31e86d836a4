"""The notebooks run from the first cell to the last, in a kernel of their own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "workflows" / "notebooks"
NOTEBOOKS = {
    "laptop": ("with 100 features", 4),
    "cluster": ("one worker less on the way", 2),
    "check_your_data": ("checked", 4),
    "from_a_raw_table": ("read back", 1),
}
"""What each prints after its own assertions held, and how many pictures it draws."""


class OwnKernel(KernelManager):
    """Starts the interpreter of the tests, whatever kernels are installed for the user."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """Return how to start it."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="tests", language="python")


def outputs(notebook: Any) -> list[Any]:
    return [part for cell in notebook.cells for part in cell.get("outputs", [])]


def printed(notebook: Any) -> str:
    return "".join(part["text"] for part in outputs(notebook) if part.get("name") == "stdout")


def pictures(notebook: Any) -> int:
    return sum("image/png" in part.get("data", {}) for part in outputs(notebook))


def test_every_notebook_is_tested_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_committed_without_outputs(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert code[0].metadata["tags"] == ["parameters"]  # where papermill puts its own


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_between_cells_lead_somewhere(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        assert (FOLDER / link).is_file(), link
    assert prose.startswith("# ")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Jupyter and matplotlib keep their files (fonts, once), instead of the user's own."""
    return tmp_path_factory.mktemp("folders")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(
    name: str, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(folders / variable))
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    client = NotebookClient(
        notebook,
        timeout=280,
        kernel_manager_class=OwnKernel,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    last_words, fewest_pictures = NOTEBOOKS[name]
    assert last_words in printed(notebook)
    assert pictures(notebook) >= fewest_pictures

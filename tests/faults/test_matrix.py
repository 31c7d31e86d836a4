"""Every phase under every fault: the undisturbed result, or a named error and then that result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.faults import FAULTS, HUNG, ON_DISK, Bench, Cell
from tests.faults.phases import PHASES, Phase

CELLS = [
    pytest.param(phase, fault, id=f"{fault}-{phase.name}".replace(" ", "-"))
    for fault in FAULTS
    for phase in PHASES
    if phase.writes or fault not in ON_DISK
]
CORE = {
    "one worker killed": ("ingest", "shuffle", "gather", "select", "write", "SGD", "score"),
    "all workers killed": ("ingest", "SGD", "ridge"),
    "worker stopped": ("PCA",),
    "scaled to one": ("write", "compare"),
    "driver killed": ("write", "SGD"),
    "disk full": ("ingest", "SGD"),
    "read-only": ("shuffle",),
    "only worker killed": ("SGD", "run"),
    "memory limit": ("SGD",),
    "scheduler gone": ("ridge",),
}


def strike(bench: Bench, phase: Phase, fault: str, place: Path) -> str:
    """Run one cell; clusters that a failed one leaves behind are not used again."""
    folder = place / "work"
    folder.mkdir()
    try:
        return FAULTS[fault](Cell(bench, phase, folder))
    except pytest.skip.Exception:
        raise
    except BaseException:
        bench.close()
        raise


@pytest.mark.slow
@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize(("phase", "fault"), CELLS)
def test_cell(
    bench: Bench, phase: Phase, fault: str, tmp_path: Path, record_property: pytest.Function
) -> None:
    bench.stopped_seconds = 20
    record_property("outcome", strike(bench, phase, fault, tmp_path))


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize(
    ("phase", "fault"),
    [cell for cell in CELLS if cell.values[0].name in CORE[cell.values[1]]],
)
def test_core_cell(bench: Bench, phase: Phase, fault: str, tmp_path: Path) -> None:
    bench.stopped_seconds = 2
    strike(bench, phase, fault, tmp_path)


def test_there_are_at_least_eighty_cells() -> None:
    assert len(CELLS) >= 80
    assert sum(map(len, CORE.values())) >= 20
    assert {phase.name for phase in PHASES} == {name for names in CORE.values() for name in names}

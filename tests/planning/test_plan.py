from __future__ import annotations

import json
import tracemalloc
from typing import Any

import dask
import dask.array as da
import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.planning import speed
from rfcdask.planning.speed import HANDLING, Rates, expected_seconds
from rfcdask.planning.work import Resources, Workload, find_problems, keeps_features, peaks

mpl.use("agg")
GIB = 2**30
SMALL = {"n_components": 50, "n_candidates": 500, "n_rows": 500, "refine": 10}


def _data(rows: int = 10_000, columns: int = 5, block: int = 1000) -> da.Array:
    rng = da.random.default_rng(0)
    return rng.normal(size=(rows, columns), chunks=(block, columns)).astype(np.float32)


def _work(**changes: Any) -> Workload:
    given = {
        "rows": 1_000_000,
        "columns": 28,
        "itemsize": 4,
        "label_itemsize": 8,
        "block_rows": (100_000,) * 10,
        "n_components": 300,
        "n_candidates": 5000,
        "n_rows": 5000,
        "n_pairs": None,
        "refine": 300,
        "epochs": 5,
        "outputs": 1,
        "steps": ("fit", "train"),
        "writes": False,
        "persist": False,
    }
    return Workload(**(given | changes))


def _place(**changes: Any) -> Resources:
    given = {
        "workers": 2,
        "threads": 4,
        "cpus": 4,
        "driver_base": 3 * 10**8,
        "worker_base": 3 * 10**8,
        "worker_limit": 4 * GIB,
        "driver_limit": 16 * GIB,
        "persist_budget": GIB,
        "selection_budget": 3 * GIB,
    }
    return Resources(**(given | changes))


def test_without_a_probe_nothing_is_computed(refusing_scheduler: Any) -> None:
    with dask.config.set(scheduler=refusing_scheduler):
        plan = rf.plan(_data(), probe=False, **SMALL)
    assert (plan.blocks, plan.seconds) == (10, None)
    assert plan.bytes_written == 0
    assert plan.peak_worker_bytes == 0  # the threads of this process do the work
    assert plan.fits
    plan.check()


def test_a_probe_tells_the_time_of_each_step() -> None:
    plan = rf.plan(_data(), steps=("fit", "train", "compare"), **SMALL)
    assert set(plan.steps) == {"fit", "train", "compare"}
    assert all(seconds > 0 for seconds in plan.steps.values())
    assert plan.seconds == pytest.approx(sum(plan.steps.values()))


def test_a_probe_on_a_cluster(cluster_client: Any) -> None:
    plan = rf.plan(_data(), client=cluster_client, **SMALL)
    assert plan.settings["workers"] == 2
    assert plan.peak_worker_bytes > 10**8
    assert plan.seconds > 0


def test_features_that_learn_are_planned_as_training() -> None:
    X, y = _data(), da.zeros(10_000, chunks=1000, dtype=np.int8)
    plan = rf.plan(X, y, method="learned", epochs=3, **SMALL)
    assert set(plan.steps) == {"train"}
    assert plan.steps["train"] > 0
    sampled = 10_000 * 5 * 4
    assert plan.bytes_read == 3 * 10_000 * (5 * 4 + 1) + sampled
    assert not plan.settings["features_kept"]
    more = rf.plan(X, y, method="learned", epochs=3, probe=False, **SMALL | {"n_components": 10**6})
    assert more.peak_driver_bytes > plan.peak_driver_bytes + 10**6 * 5 * 8


def test_time_of_learning_follows_the_rows() -> None:
    rates = Rates(1e-6, 2e-6, 3e-6, 0.5, 1e11, 0.02, 1e-4, 1e-3, 5e-6)
    work, place = _work(learns=True, steps=("train",)), _place()
    once = expected_seconds(work, rates, place)["train"]
    twice = expected_seconds(_work(learns=True, steps=("train",), epochs=10), rates, place)["train"]
    assert once >= 5 * 1_000_000 * 5e-6  # every row five times, and trials of widths
    assert 1.9 < twice / once < 2.0


def test_bytes_are_those_of_the_data() -> None:
    X, y = _data(), da.zeros(10_000, chunks=1000, dtype=np.int8)
    row, gathered = 5 * 4 + 1, (500 + 1000) * 5 * 4
    lazily = rf.plan(X, y, epochs=3, persist=False, probe=False, **SMALL)
    # Three epochs, and again with the penalty that was chosen.
    assert lazily.bytes_read == 6 * 10_000 * row + gathered
    kept = rf.plan(X, y, epochs=3, persist=True, probe=False, **SMALL)
    assert kept.bytes_read == 10_000 * row + gathered
    assert kept.tasks < lazily.tasks
    written = rf.plan(X, y, steps=("transform",), probe=False, **SMALL)
    assert (written.bytes_read, written.bytes_written) == (10_000 * row, 10_000 * 50 * 4)


def test_a_data_set_brings_its_labels(tmp_path: Any) -> None:
    rf.synthetic("higgs", rows=2000, dest=tmp_path / "higgs.zarr")
    dataset = rf.open_dataset(tmp_path / "higgs.zarr")
    plan = rf.plan(dataset, probe=False, **SMALL)
    assert plan.settings["columns"] == 28
    assert json.loads(json.dumps(plan.to_dict())) == plan.to_dict()


def test_a_small_worker_is_said_and_the_remedy_helps() -> None:
    """The sentence names a number of rows; blocks of that many rows fit."""
    X = _data(2_000_000, 28, 1_000_000)
    with rf.connect(n_workers=1, threads_per_worker=1, memory_limit="1GB") as client:
        plan = rf.plan(X, n_components=300, persist=False, client=client, probe=False)
        assert not plan.fits
        with pytest.raises(rf.PlanError, match="smaller blocks of at most") as caught:
            plan.check()
        assert isinstance(caught.value, MemoryError)
        assert "may take 0.93 GiB" in str(caught.value) or "953.67 MiB" in str(caught.value)
        rows = int(str(caught.value).split("at most ")[1].split(" ")[0].replace(",", ""))
        smaller = X.rechunk({0: rows})
        assert rf.plan(smaller, n_components=300, persist=False, client=client, probe=False).fits


def test_too_many_candidates_are_said() -> None:
    work, place = _work(n_candidates=100_000), _place(driver_limit=GIB, worker_limit=64 * GIB)
    (said,) = find_problems(work, place, peaks(work, place), None)
    assert "fewer candidates" in said
    assert "1.00 GiB are free" in said


def test_a_full_machine_is_said() -> None:
    work = _work(steps=("fit",))
    place = _place(workers=8, worker_limit=4 * GIB, driver_limit=GIB, worker_base=0)
    (said,) = find_problems(work, place, peaks(work, place), None)
    assert "8 workers on the same machine" in said
    elsewhere = _place(workers=8, worker_limit=4 * GIB, driver_limit=GIB, shared=False)
    assert not find_problems(work, elsewhere, peaks(work, elsewhere), None)


def test_a_full_disk_is_said(tmp_path: Any) -> None:
    work = _work(rows=10**12, writes=True, steps=("transform",))
    (said,) = find_problems(work, _place(), peaks(work, _place()), tmp_path / "new" / "z.zarr")
    assert "fewer features (n_components) or another disk" in said


@given(
    st.integers(1, 20),
    st.integers(1, 8),
    st.sampled_from(["block_rows", "n_components", "n_candidates", "columns", "n_rows"]),
)
def test_more_work_never_takes_less_memory(blocks: int, workers: int, name: str) -> None:
    work, place = _work(block_rows=(10_000,) * blocks), _place(workers=workers)
    more = {"block_rows": (20_000,) * blocks}.get(name) or 2 * getattr(work, name)
    before, after = (
        peaks(work, place),
        peaks(_work(**{"block_rows": (10_000,) * blocks, name: more}), place),
    )
    if name == "block_rows":
        # Smaller groups are mixed of larger blocks: one block's bytes may come and go.
        assert after[0] >= 0.5 * before[0]
    else:
        assert after[1] >= before[1]


@pytest.mark.parametrize(
    ("persist", "epochs", "kept"), [("auto", 5, True), ("auto", 1, False), (False, 5, False)]
)
def test_features_are_kept_as_training_does(persist: Any, epochs: int, kept: bool) -> None:
    work = _work(rows=1000, persist=persist, epochs=epochs)
    assert keeps_features(work, _place()) is kept


def test_time_follows_the_rates() -> None:
    rates = Rates(1e-6, 2e-6, 3e-6, 0.5, 1e11, 0.02, 1e-4, 1e-3)
    slow = Rates(*(2 * rate for rate in vars(rates).values()))
    work, place = _work(), _place()
    once, twice = expected_seconds(work, rates, place), expected_seconds(work, slow, place)
    assert twice["train"] == pytest.approx(2 * once["train"])
    # learning is one thread's; reading and evaluating, and ten tasks, are shared by four
    assert once["train"] == pytest.approx(0.5 + 5 * HANDLING * (3.0 + (3.0 + 0.01) / 4))


@pytest.mark.parametrize(
    ("X", "settings", "error", "says"),
    [
        (np.zeros((3, 2)), {}, TypeError, "from_array"),
        (_data(), {"steps": ("fly",)}, ValueError, "'fly' is not one of fit, transform, train"),
        (_data(), {"n_components": 0}, ValueError, "n_components=0 must be at least 1"),
        (da.zeros(3, chunks=3), {}, ValueError, "1 dimension"),
        (_data()[da.from_array(np.ones(10_000, bool))], {}, ValueError, "unknown chunk sizes"),
        (_data()[:0], {}, ValueError, "is empty"),
    ],
)
def test_bad_arguments(X: Any, settings: dict[str, Any], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        rf.plan(X, probe=False, **settings)


def test_how_it_shows() -> None:
    plan = rf.plan(_data(), probe=False, **SMALL)
    wrong = rf.Plan(**(vars(plan) | {"problems": ["<script>alert(1)</script>"]}))
    assert "blocks" in repr(plan)
    assert repr(wrong).splitlines()[-1] == "  ! <script>alert(1)</script>"
    assert "<script>" not in wrong._repr_html_()
    assert "&lt;script&gt;" in wrong._repr_html_()
    ax = plan.plot()
    widths = sum(bar.get_width() for bar in ax.patches)
    assert widths == pytest.approx(plan.peak_driver_bytes / 1e9, rel=1e-3)
    assert plan.plot(ax=ax) is ax
    mpl.pyplot.close("all")


def test_the_drawing_shows_all_parts_alike() -> None:
    here = rf.plan(_data(), probe=False, **SMALL)
    driver = here.memory["driver"]
    worker = dict(reversed(driver.items())) | {"something else": 10**8}
    changed = {"peak_worker_bytes": 10**9, "memory": {"driver": driver, "worker": worker}}
    ax = rf.Plan(**(vars(here) | changed)).plot()
    ax.figure.canvas.draw()
    drawn = {part.get_label(): part.patches for part in ax.containers}
    assert {"the process itself", "sampled rows"} <= set(drawn)
    for bars in drawn.values():
        assert len(bars) == 2
        assert bars[0].get_facecolor() == bars[1].get_facecolor()
    looks = [(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in drawn.values()]
    assert len(set(looks)) == len(looks)
    assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y0
    mpl.pyplot.close("all")


def test_several_penalties_and_a_second_training_are_counted() -> None:
    few = _work(rows=50_000, epochs=6)
    assert (few.penalties, few.trainings) == (4, 2)
    assert few.mean_penalties == pytest.approx((4 * 2**18 + 2 * (300_000 - 2**18)) / 300_000)
    many = _work(rows=2**22, epochs=2)  # half of 2**19 rows each with four and two
    assert (many.trainings, many.mean_penalties) == (1, pytest.approx((4 + 2 + 14) / 16))
    assert _work(rows=100, epochs=5).mean_penalties == 1.0


def test_epochs_are_those_that_models_choose() -> None:
    X = da.zeros((30_000, 3), chunks=(10_000, 3))
    made = {method: rf.plan(X, method=method, epochs="auto", probe=False).settings["epochs"]
            for method in ("compressed", "learned")}  # fmt: skip
    assert made == {"compressed": 10, "learned": 5}


def test_a_probe_of_wide_sparse_rows_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MOST_PROBED", 2**18)
    block = sp.random_array((64, 2_000_000), density=1e-5, format="csr", dtype="float32", rng=0)
    speed.measure_block(block[:, :1000], 10, 1, 1000, True, True)  # compiled
    tracemalloc.start()
    try:
        found = speed.measure_block(block, 10, 1, 1000, True, True)
        assert tracemalloc.get_traced_memory()[1] < 2**25  # dense rows alone take 512 MB
    finally:
        tracemalloc.stop()
    assert found["evaluate"] > 0
    assert found["learn_features"] > 0
    work = _work(columns=10**7, n_rows=50, n_components=10, refine=1)
    tracemalloc.start()
    try:
        speed._step_seconds(work)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()

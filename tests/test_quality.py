"""How good the maps are on real data: every method in one run, Nyström included.

The small test runs always, on data of its own. The slow ones print the whole table:

    pytest -m slow tests/test_quality.py -s
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.pages import load_script


@pytest.fixture(scope="module")
def workflow() -> ModuleType:
    return load_script("compare_maps.py")


def test_order_of_methods_on_small_data(workflow: ModuleType) -> None:
    data = workflow.two_shells(4000, 2000, p=10)
    found = workflow.compare(data, size=80, n_candidates=800, n_points=2000)
    error = {name: result.errors.mean() for name, result in found.items()}
    accuracy = {name: result.accuracies.mean() for name, result in found.items()}
    assert error["RFM-GIGA (paper)"] < 0.85 * error["RFM"] < error["RFM-JL"]
    assert error["ours, not refined"] < 0.97 * error["RFM-GIGA (paper)"]
    assert error["ours"] < 0.8 * error["RFM-GIGA (paper)"]
    assert accuracy["ours, labels 1"] > accuracy["RFM"] + 0.02


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "gamma", "scale", "not_refined", "refined"),
    [("a9a", 0.05, 1.0, 0.85, 0.5), ("mnist", 0.02, 255.0, 0.96, 0.72)],
)
def test_kernel_error_at_500_features(
    name: str,
    gamma: float,
    scale: float,
    not_refined: float,
    refined: float,
    shared_data: Path,
    workflow: ModuleType,
) -> None:
    data = workflow.read_npz(shared_data / "datasets" / f"{name}.npz", scale)
    print(f"\n{name}, gamma {gamma}, 500 of 5,000 features, seeds 0 to 2")
    found = workflow.compare(data, size=500, gamma=gamma, n_seeds=3)
    error = {key: result.errors.mean() for key, result in found.items()}
    assert error["RFM-GIGA (paper)"] <= 0.75 * error["RFM"]
    assert error["ours, not refined"] <= not_refined * error["RFM-GIGA (paper)"]
    assert error["ours"] <= refined * error["RFM-GIGA (paper)"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_labels_on_mnist(shared_data: Path, workflow: ModuleType) -> None:
    data = workflow.read_npz(shared_data / "datasets" / "mnist.npz", 255.0)
    print("\nmnist, gamma 0.02, ridge accuracy on the test set")
    kept = ["ours", "ours, labels 1", "Nyström, uniform", "Nyström, rpcholesky", "RFM"]
    found = workflow.compare(data, size=300, gamma=0.02, n_seeds=3, only=kept)
    large = workflow.compare(data, size=1000, gamma=0.02, n_seeds=3, only=["RFM"])
    labels = found["ours, labels 1"].accuracies.mean()
    assert labels >= 0.94
    assert labels > large["RFM"].accuracies.mean()
    assert labels > found["Nyström, uniform"].accuracies.mean()
    assert labels > found["Nyström, rpcholesky"].accuracies.mean()

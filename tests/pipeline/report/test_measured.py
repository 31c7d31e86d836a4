"""The report of what was really measured: a map that was fitted and methods that were compared."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import confusion_matrix

import rfcdask as rf
from rfcdask.pipeline.report.page import recommend, render
from tests.linear_data import blobs
from tests.pipeline.report.wellformed import read


def test_real_figures_reach_the_page() -> None:
    X, y = blobs(600, 5, 3)
    rows = rf.compare(
        X, y, ["random", "compressed", "nystroem"], n_components=[6, 12], n_candidates=60,
        random_state=0,
    ).rows  # fmt: skip
    features = rf.CompressedFeatures(12, n_candidates=60, refine=5, random_state=0).fit(X)
    model = rf.RidgeClassifier().fit(features.transform(X), y)
    path = features.error_path_
    results = {
        "format": 1,
        "data": {"name": "blobs", "test_rows": 120, "class_counts": np.bincount(y).tolist()},
        "comparison": rows,
        "selection": {
            "sizes": path.sizes.tolist(),
            "sampled": path.sampled.tolist(),
            "heldout": path.heldout.tolist(),
            "chosen_size": len(features.weights_),
            "refined_heldout": features.heldout_error_,
            "weights": features.weights_.tolist(),
        },
        "confusion": {
            "labels": ["0", "1", "2"],
            "matrix": confusion_matrix(y, model.predict(features.transform(X))).tolist(),
        },
    }
    shown = " ".join(read(render(results)).text)
    for row in rows:
        assert f"{100 * row['accuracy']:.2f}%" in shown
    assert "chosen: 12" in shown
    best = max(row["accuracy"] for row in rows)
    assert f"{100 * best:.1f}%" in recommend(results)["reason"]

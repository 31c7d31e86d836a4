"""How far a feature map is from the exact kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rfcdask.data.sample import gather_finite
from rfcdask.features.base import FeatureMap, check_count
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.kernels.arrays import Array, Matrix, RandomState
from rfcdask.kernels.seeds import draw_rows, seed_of, stream
from rfcdask.kernels.threads import map_tiles
from rfcdask.selection.candidates import sum_of_squares

if TYPE_CHECKING:
    from distributed import Client

_TILE = 512


def kernel_error(
    feature_map: Any,
    X: Any,
    *,
    n_points: int = 10_000,
    random_state: RandomState = None,
    client: Client | None = None,
) -> float:
    """Return ``||Z Z^T - K||_F / ||K||_F`` on a random sample of rows, with K the exact kernel.

    Parameters
    ----------
    feature_map : fitted feature map
    X : array, CSR or dask array of shape (n_samples, n_features)
    n_points : int, default=10_000
        How many rows to draw; all of them when there are fewer.
    random_state : int, RandomState, Generator or None
    client : distributed.Client, optional
        Where rows of a dask array are fetched.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> features = rf.RandomFeatures(4000, random_state=0).fit(X)
    >>> rf.kernel_error(features, X, random_state=0) < 0.1
    True
    """
    check_count("n_points", n_points, least=2)
    if not hasattr(feature_map, "gamma_") or not hasattr(feature_map, "kernel"):
        raise TypeError(
            f"kernel_error needs a fitted feature map with kernel and gamma_, which "
            f"{type(feature_map).__name__} has not; of a pipeline, pass the map alone and the rows "
            "as it sees them."
        )
    evaluate = feature_map.transform
    if isinstance(feature_map, FeatureMap):
        X, evaluate = feature_map._check_input(X, reset=False), feature_map._evaluate
    drawn = draw_rows(X.shape[0], min(n_points, X.shape[0]), stream(seed_of(random_state), "error"))
    rows = gather_finite(X, drawn, client)
    Z = np.asarray(evaluate(rows))
    kernel, gamma = get_kernel(feature_map.kernel), feature_map.gamma_
    rows = rows.astype(np.float64)

    def squares(start: int) -> tuple[float, float]:
        return _tile_squares(kernel, gamma, rows, Z, start)

    sums = np.array(map_tiles(squares, range(0, rows.shape[0], _TILE)))
    wrong, whole = sums.sum(axis=0)
    return float(np.sqrt(wrong / whole))


def _tile_squares(
    kernel: Kernel, gamma: float, rows: Matrix, Z: Array, start: int
) -> tuple[float, float]:
    """Return the sums of (Z Z^T - K)^2 and of K^2 over a tile of rows; K is symmetric."""
    stop = min(start + _TILE, Z.shape[0])
    K = kernel.exact(rows[start:stop], rows[start:], gamma)
    E = Z[start:stop] @ Z[start:].T - K
    twice = 2 * sum_of_squares(E) - sum_of_squares(E[:, : stop - start])
    return twice, 2 * sum_of_squares(K) - sum_of_squares(K[:, : stop - start])

"""From scikit-learn's ``random_state`` to independent named streams of random numbers."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from rfcdask.kernels.types import RandomState


def seed_of(random_state: RandomState) -> int:
    """Return one integer that stands for `random_state`, to be stored with a fitted object.

    An integer stands for itself; a generator or None gives one draw.
    """
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state={random_state} must not be negative.")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one named purpose: streams of other names are independent of it.

    A step that draws more or fewer numbers than before leaves all other steps as they were.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, *name.encode()]))

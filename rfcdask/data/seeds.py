"""From whatever users call a random state to one integer that can be written down."""

from __future__ import annotations

from typing import Any

import numpy as np


def seed_from(random_state: Any) -> int:
    """Return a seed: the integer itself, a draw from a generator, or fresh entropy for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"random_state={random_state}: a seed is not negative.")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise ValueError(f"random_state={random_state!r}: give an integer, a numpy generator or None.")

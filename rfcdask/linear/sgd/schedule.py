"""In which order rows are learned from: a function of the seed and the data, never of the cluster.

Blocks are cut into as many strata as are mixed in a group, far apart from each other; each epoch
permutes every stratum anew and a group takes one block of each. All rows of a group are then
shuffled together. On data in random order this is as good as any order; on data sorted by class
a group still spans the whole of it.
"""

from __future__ import annotations

import numpy as np

from rfcdask.kernels.seeds import draw_parts
from rfcdask.kernels.types import Array
from rfcdask.linear.sgd.optimizer import MIX

GROUP_BYTES = 2**27
"""Rows of several blocks are mixed as long as they stay below this size."""


def blocks_mixed(n_blocks: int, block_bytes: int) -> int:
    """Return how many blocks are mixed in a group."""
    return int(min(MIX, n_blocks, max(1, GROUP_BYTES // max(block_bytes, 1))))


def plan_epoch(n_blocks: int, mixed: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the groups of block numbers of one epoch."""
    rng = np.random.default_rng([seed, 1, epoch])
    strata = [rng.permutation(part) for part in np.array_split(np.arange(n_blocks), mixed)]
    longest = max(len(part) for part in strata)
    return [[int(part[k]) for part in strata if k < len(part)] for k in range(longest)]


def shuffled_rows(sizes: list[int], seed: int, epoch: int, number: int) -> tuple[Array, Array]:
    """Return block and row of all rows of a group, shuffled together."""
    which = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.concatenate([np.arange(size) for size in sizes])
    order = np.random.default_rng([seed, 2, epoch, number]).permutation(len(rows))
    return which[order], rows[order]


def held_out_rows(size: int, fraction: float, seed: int, index: int) -> Array:
    """Return which rows of a block are never trained on, the same in every epoch."""
    mask = np.zeros(size, bool)
    if fraction > 0 and size > 1:
        count = max(1, round(fraction * size))
        rng = np.random.default_rng([seed, 3, index])
        mask[draw_parts(size, (count, size - count), rng)[0]] = True
    return mask

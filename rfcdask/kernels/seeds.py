"""From scikit-learn's ``random_state`` to named streams of random numbers, rows drawn and held out.

Rows are drawn by their number, so that the choice follows from the seed and the number of rows. The
same seed gives the same rows in all versions: models and reports that were saved rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray, RandomState


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
    from sklearn.utils import check_random_state  # workers do without scikit-learn

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise ValueError(
            f"random_state={random_state!r} is neither a whole number from 0 on nor a generator "
            "of numpy nor None."
        ) from error


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one named purpose: streams of other names are independent of it.

    A step that draws more or fewer numbers than before leaves all other steps as they were.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, *name.encode()]))


def draw_rows(n_rows: int, size: int, rng: np.random.Generator) -> IntArray:
    """Draw `size` distinct row numbers below `n_rows`, uniformly, in random order."""
    if size >= n_rows:
        return rng.permutation(n_rows)
    return rng.choice(n_rows, size, replace=False)


def draw_parts(n_rows: int, sizes: Sequence[int], rng: np.random.Generator) -> list[IntArray]:
    """Draw disjoint sets of rows, such as rows to learn from and rows held out, uniformly.

    Each set is in random order: any beginning of it is a random sample too.
    """
    drawn = draw_rows(n_rows, sum(sizes), rng)
    return np.split(drawn, np.cumsum(sizes)[:-1])


def draw_pairs(n_rows: int, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw `size` independent pairs i < j, uniform over all ``n_rows (n_rows - 1) / 2``."""
    i = rng.integers(0, n_rows, size)
    j = rng.integers(0, n_rows - 1, size)
    j += j >= i  # uniform over the n - 1 other rows
    return np.minimum(i, j), np.maximum(i, j)


def held_out_by_number(start: int, n: int, fraction: float, seed: int) -> Array:
    """Return which of rows start, ..., start + n - 1 are held out, whatever block they are in.

    For rows that come block by block, and nobody knows how many: the number of a row is hashed
    (splitmix64) and decides alone, so about this fraction is held out.
    """
    numbers = np.arange(start, start + n, dtype=np.uint64)
    return np.asarray(hash_rows(numbers, seed) < np.uint64(int(fraction * 2**64)))


def hash_rows(numbers: Array, seed: int) -> Array:
    """Return random 64-bit numbers that depend on the numbers of rows and a seed (splitmix64)."""
    offset = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64
    x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(offset)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.asarray(x)


def epoch_groups(
    n_blocks: int, mixed: int, seed: int, epoch: int, chains: int = 1
) -> list[list[int]]:
    """Return the groups of block numbers of one epoch, in the order in which they are taken.

    Groups for several chains are a multiple of them, of nearly the same size: chains that wait for
    each other then end together, and none is left over for one chain alone.
    """
    rng = np.random.default_rng([seed, 1, epoch])
    parts = np.array_split(np.arange(n_blocks), mixed)
    if chains > 1:
        count = chains * -(-n_blocks // (mixed * chains))
        parts = np.split(np.arange(n_blocks), range(count, n_blocks, count))
    strata = [rng.permutation(part) for part in parts]
    longest = max(len(part) for part in strata)
    return [[int(part[k]) for part in strata if k < len(part)] for k in range(longest)]


def blocks_ahead(group: int, threads: int, local: bool) -> int:
    """Return how many blocks are read while a group is learned from, out of the next group.

    In one process three quarters of it: the last quarter is an eighth of what blocks take, and is
    little to wait for. Workers have more memory, and more to wait for.
    """
    return max(group - group // 4 if local else group, threads)


def shuffle_rows(sizes: list[int], seed: int, epoch: int, number: int) -> tuple[Array, Array]:
    """Return block and row of all rows of a group, shuffled together."""
    block_of = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    row_of = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    order = np.random.default_rng([seed, 2, epoch, number]).permutation(len(row_of))
    return block_of[order], row_of[order]


def take_entries(columns: Sequence[Array], block_of: Array, row_of: Array) -> Array:
    """Return the entries of columns, one for each block, that belong to some rows."""
    if not any(len(column) for column in columns):
        return columns[0]
    offsets = np.cumsum([0, *(len(column) for column in columns)])
    return np.asarray(np.concatenate(columns)[offsets[block_of] + row_of])


def held_out_rows(size: int, fraction: float, seed: int, index: int) -> Array:
    """Return which rows of a block are never trained on, the same in every epoch."""
    mask = np.zeros(size, bool)
    if fraction > 0 and size > 1:
        count = max(1, round(fraction * size))
        rng = np.random.default_rng([seed, 3, index])
        mask[draw_parts(size, (count, size - count), rng)[0]] = True
    return mask

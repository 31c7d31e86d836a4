from __future__ import annotations

import numpy as np
import pytest

from rfcdask.kernels.seeds import seed_of, stream


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), 2**40])
def test_an_integer_stands_for_itself(seed: int) -> None:
    assert seed_of(seed) == seed
    assert type(seed_of(seed)) is int


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_generators_give_one_reproducible_draw(make: type) -> None:
    generator = make(3)
    first, second = seed_of(generator), seed_of(generator)
    assert first != second
    assert first == seed_of(make(3))


def test_none_follows_the_global_seed() -> None:
    np.random.seed(5)  # noqa: NPY002 - scikit-learn's rule for random_state=None
    first = seed_of(None)
    np.random.seed(5)  # noqa: NPY002
    assert seed_of(None) == first


def test_bad_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"random_state=-1 must not be negative"):
        seed_of(-1)
    with pytest.raises(ValueError, match="seed"):
        seed_of("seed")


def test_streams_are_reproducible_and_differ_by_name_and_seed() -> None:
    same = [stream(1, "rows").random(4) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    others = [stream(1, "pairs"), stream(2, "rows"), stream(1, "row"), stream(1, "rowss")]
    for other in others:
        assert not np.isin(other.random(4), same[0]).any()

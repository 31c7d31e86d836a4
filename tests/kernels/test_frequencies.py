from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from threadpoolctl import threadpool_limits

from rfcdask.kernels import get_kernel
from rfcdask.kernels.frequencies import (
    SOBOL_MAX_COLUMNS,
    Fastfood,
    Frequencies,
    draw_frequencies,
    hadamard_rows,
    padded_size,
)
from tests.reference import DRAWS, KERNELS, exact_kernel

GAMMA, P = 0.3, 5


def draw(name: str, sampling: str, n: int, seed: int, p: int = P) -> Frequencies:
    return draw_frequencies(get_kernel(name), GAMMA, p, n, sampling, np.random.default_rng(seed))


def sides() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return 0.7 * rng.normal(size=(40, P)), 0.7 * rng.normal(size=(40, P))


def approximate(drawn: Frequencies, phases: str) -> np.ndarray:
    """Return the kernel of each pair as its random features have it."""
    X, Y = sides()
    n = len(drawn.phases)
    if phases == "paired":
        scale = np.sqrt(1 / n)
        parts = [(scale * f(X @ drawn.vectors), scale * f(Y @ drawn.vectors)) for f in TRIGS]
    else:
        scale = np.sqrt(2 / n)
        both = [scale * np.cos(side @ drawn.vectors + drawn.phases) for side in (X, Y)]
        parts = [(both[0], both[1])]
    return np.sum([np.einsum("ij,ij->i", a, b) for a, b in parts], axis=0)


TRIGS = (np.cos, np.sin)


# Under a correct draw about one in a hundred of these means lies beyond three standard errors,
# so the seeds are fixed; 256 features make the standard error small (about .004 for iid).
@pytest.mark.parametrize("phases", ["random", "paired"])
@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_and_draw_has_the_exact_kernel_as_its_mean(
    name: str, sampling: str, phases: str
) -> None:
    exact = np.diag(exact_kernel(name, *sides(), GAMMA))
    signed = np.array(
        [
            np.mean(approximate(draw(name, sampling, 256, s), phases) - exact)
            for s in range(100, 120)
        ]
    )
    standard_error = signed.std(ddof=1) / np.sqrt(len(signed))
    assert standard_error < 0.02
    assert abs(signed.mean()) < 3 * standard_error


@pytest.mark.parametrize("phases", ["random", "paired"])
@pytest.mark.parametrize("name", KERNELS)
def test_iid_error_falls_as_one_over_the_root_of_the_number(name: str, phases: str) -> None:
    exact = np.diag(exact_kernel(name, *sides(), GAMMA))
    sizes = np.array([64, 256, 1024])
    errors = [
        np.sqrt(
            np.mean(
                [(approximate(draw(name, "iid", n, s), phases) - exact) ** 2 for s in range(20)]
            )
        )
        for n in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.06)


@pytest.mark.parametrize("sampling", ["orthogonal", "halton", "sobol"])
def test_structured_draws_are_no_worse_than_independent_ones(sampling: str) -> None:
    exact = np.diag(exact_kernel("rbf", *sides(), GAMMA))

    def rms(kind: str) -> float:
        found = [approximate(draw("rbf", kind, 256, s), "paired") - exact for s in range(20)]
        return float(np.sqrt(np.mean(np.square(found))))

    assert rms(sampling) < rms("iid")


MARGINALS = {
    "rbf": stats.norm(scale=np.sqrt(2 * GAMMA)),
    "laplacian": stats.cauchy(scale=GAMMA),
    "cauchy": stats.laplace(scale=GAMMA),
    "matern12": stats.t(1, scale=GAMMA),
    "matern32": stats.t(3, scale=GAMMA),
    "matern52": stats.t(5, scale=GAMMA),
}


@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("name", KERNELS)
def test_marginal_distribution(name: str, sampling: str) -> None:
    # The first vectors of many draws: vectors of one draw depend on each other.
    first = np.array([draw(name, sampling, 2, seed).vectors[1, 1] for seed in range(400)])
    assert stats.kstest(first, MARGINALS[name].cdf).pvalue > 1e-3


@pytest.mark.parametrize("sampling", DRAWS)
def test_shapes_phases_and_reproducibility(sampling: str) -> None:
    one, same, other = (draw("rbf", sampling, 37, seed) for seed in (1, 1, 2))
    assert one.vectors.shape == (P, 37)
    assert one.vectors.flags.c_contiguous
    assert one.phases.shape == (37,)
    assert ((one.phases > 0) & (one.phases < 2 * np.pi)).all()
    np.testing.assert_array_equal(one.vectors, same.vectors)
    np.testing.assert_array_equal(one.phases, same.phases)
    assert not np.isin(other.vectors, one.vectors).any()


@pytest.mark.parametrize("sampling", DRAWS)
def test_one_frequency_of_one_column(sampling: str) -> None:
    drawn = draw("rbf", sampling, 1, 0, p=1)
    assert drawn.vectors.shape == (1, 1)
    assert np.isfinite(drawn.vectors).all()


@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("name", KERNELS)
def test_frequencies_are_finite(name: str, sampling: str) -> None:
    assert np.isfinite(draw(name, sampling, 3000, 0).vectors).all()


def test_orthogonal_blocks_are_orthogonal_with_chi_lengths() -> None:
    vectors = draw("rbf", "orthogonal", 3 * P, 3).vectors.T / np.sqrt(2 * GAMMA)
    for block in np.split(vectors, 3):
        products = block @ block.T
        np.testing.assert_allclose(products - np.diag(np.diag(products)), 0, atol=1e-12)
    many = np.concatenate([draw("rbf", "orthogonal", P, s).vectors.T for s in range(100)])
    squared = np.sum(many**2, axis=1) / (2 * GAMMA)
    assert stats.kstest(squared, stats.chi2(P).cdf).pvalue > 1e-3


def test_orthogonal_draw_does_not_depend_on_blas_threads() -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(draw("rbf", "orthogonal", 600, 0, p=300).vectors)
    np.testing.assert_array_equal(*found)


def test_sobol_refuses_too_many_columns_with_a_remedy() -> None:
    assert SOBOL_MAX_COLUMNS == stats.qmc.Sobol.MAXDIM - 2
    with pytest.raises(ValueError, match=r"sobol.*21,199 columns.*use sampling='halton'"):
        draw("rbf", "sobol", 4, 0, p=SOBOL_MAX_COLUMNS + 1)


def test_unknown_draws_are_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match=r"Unknown sampling 'dice': choose one of iid, orthogonal"):
        draw("rbf", "dice", 4, 0)


@settings(max_examples=40, deadline=None)
@given(
    p=st.integers(1, 40),
    n=st.integers(1, 150),
    rows=st.integers(0, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 10**6),
)
def test_fastfood_projects_as_its_matrix_does(
    p: int, n: int, rows: int, dtype: type, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    structure = Fastfood.draw(p, n, rng)
    X = rng.normal(size=(rows, p)).astype(dtype)
    out = np.empty((rows, n), dtype)
    structure.astype(np.dtype(dtype)).project(X, out)
    assert structure.matrix().shape == (p, n)
    scale = np.linalg.norm(X, axis=1, keepdims=True) * np.linalg.norm(structure.matrix(), axis=0)
    off = np.abs(out - X.astype(np.float64) @ structure.matrix())
    assert (off <= 100 * np.finfo(dtype).eps * scale + 1e-300).all()


def test_fastfood_is_the_product_of_its_factors() -> None:
    f = Fastfood.draw(8, 16, np.random.default_rng(4))
    H = scipy.linalg.hadamard(8).astype(float)
    blocks = [
        np.diag(f.lengths[k]) @ H @ np.diag(f.gauss[k]) @ np.eye(8)[f.permutation[k]] @ H
        @ np.diag(f.signs[k])
        for k in range(2)
    ]  # fmt: skip
    np.testing.assert_allclose(f.matrix().T, np.concatenate(blocks), atol=1e-12)


def test_fastfood_vectors_of_a_block_have_lengths_of_their_own() -> None:
    norms2 = np.concatenate(
        [np.sum(Fastfood.draw(8, 8, np.random.default_rng(s)).matrix() ** 2, 0) for s in range(60)]
    )
    assert len(np.unique(norms2.round(9))) == 480
    assert stats.kstest(norms2, stats.chi2(8).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
def test_structure_stands_for_the_frequencies_of_radial_kernels(name: str) -> None:
    drawn = draw(name, "fastfood", 21, 0)
    assert drawn.structure is not None
    np.testing.assert_allclose(drawn.structure.matrix(), drawn.vectors, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["laplacian", "cauchy"])
def test_warped_kernels_have_no_structure(name: str) -> None:
    assert draw(name, "fastfood", 21, 0).structure is None


@pytest.mark.parametrize("n", [1, 2, 4, 64, 512])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_multiplied_by_the_hadamard_matrix(n: int, dtype: type) -> None:
    A = np.random.default_rng(0).normal(size=(7, n)).astype(dtype)
    expected = A.astype(np.float64) @ scipy.linalg.hadamard(n)
    hadamard_rows(A)
    assert A.dtype == dtype
    np.testing.assert_allclose(A, expected, atol=50 * n * np.finfo(dtype).eps)


def test_twice_gives_the_rows_back_times_their_length() -> None:
    A = np.random.default_rng(1).integers(-9, 9, (5, 32)).astype(np.float64)
    twice = A.copy()
    hadamard_rows(twice)
    hadamard_rows(twice)
    np.testing.assert_array_equal(twice, 32 * A)


def test_no_rows_at_all() -> None:
    A = np.empty((0, 8))
    hadamard_rows(A)
    assert A.shape == (0, 8)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (784, 1024)])
def test_padded_size_is_the_next_power_of_two(n: int, size: int) -> None:
    assert padded_size(n) == size

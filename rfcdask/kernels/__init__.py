"""The mathematics of one block of rows: numpy and numba only, nothing of Dask.

    arrays       types of arrays, and what every block is asked: CSR or dense, all finite
    seeds        from random_state to named streams of random numbers; rows drawn and held out
    threads      one BLAS thread per tile, tiles side by side
    exact        the kernels: exact values, spectral draws, gamma from data
    frequencies  draws of frequencies
    hot_loop     the one place where cosine features are evaluated

Kernels are imported when they are first used: who needs threads or seeds alone does not wait for
numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.kernels.exact import ALIASES, KERNELS, Kernel, get_kernel, resolve_gamma
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return getattr(import_module("rfcdask.kernels.exact"), name)
        raise AttributeError(f"module 'rfcdask.kernels' has no attribute {name!r}")


__all__ = ["ALIASES", "KERNELS", "Kernel", "get_kernel", "resolve_gamma"]

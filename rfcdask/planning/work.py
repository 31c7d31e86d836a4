"""What is to be done, and where: the two descriptions that all estimates are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rfcdask.features.methods import METHODS

STEPS = ("fit", "transform", "train", "compare")
HELDOUT_ROWS = 1000


@dataclass(frozen=True)
class Work:
    """The data and the settings, as numbers.

    Attributes
    ----------
    rows, columns : int
        Of the whole data.
    itemsize, label_itemsize : int
        Bytes of a stored value and of a label.
    block_rows : tuple of int
        Rows of each block.
    features, candidates, sample_rows, pairs, refine, epochs, outputs
        Settings of the feature map and of the model.
    steps : tuple of str
        What of `STEPS` is done.
    writes : bool
        Whether features of all rows are written.
    persist : bool or "auto"
        Whether training keeps the features.
    methods, sizes, compare_rows, test_rows, error_rows
        What "compare" compares.
    """

    rows: int
    columns: int
    itemsize: int
    label_itemsize: int
    block_rows: tuple[int, ...]
    features: int
    candidates: int
    sample_rows: int
    pairs: int | None
    refine: int
    epochs: int
    outputs: int
    steps: tuple[str, ...]
    writes: bool
    persist: bool | str
    methods: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    compare_rows: int = 0
    test_rows: int = 0
    error_rows: int = 0

    @property
    def value_bytes(self) -> int:
        """Bytes of a feature value: float32 stays float32, as do small integers."""
        return 8 if self.itemsize == 8 else 4

    @property
    def largest_block(self) -> int:
        """Rows of the largest block."""
        return max(self.block_rows)

    @property
    def x_block(self) -> int:
        """Bytes of the largest block as it is read, in floating numbers."""
        return self.largest_block * self.columns * max(self.itemsize, self.value_bytes)

    @property
    def z_block(self) -> int:
        """Bytes of the features of the largest block, and its labels."""
        width = self.features * self.value_bytes + self.label_itemsize
        return self.largest_block * width

    @property
    def all_features(self) -> int:
        """Bytes of the features of all rows."""
        return self.rows * self.features * self.value_bytes

    def with_map(self, method: str, size: int) -> Work:
        """Return the work of fitting one map of a comparison."""
        paper = METHODS[method].paper
        return replace(
            self,
            features=size,
            pairs=20_000 if paper else None,
            refine=0 if paper else self.refine,
        )


@dataclass(frozen=True)
class Place:
    """Where work is done.

    Attributes
    ----------
    workers, threads : int
        Worker processes and the threads of all of them; no worker stands for this process.
    cpus : int
        What this process may use.
    driver_base, worker_base : int
        Bytes a process takes before it does anything.
    worker_limit, driver_limit : int
        Bytes a worker may take, and this process.
    persist_budget : float
        Bytes of features that training keeps by itself.
    selection_budget : int
        Bytes that selection may hold.
    shared : bool
        Whether workers and this process share one machine.
    """

    workers: int
    threads: int
    cpus: int
    driver_base: int
    worker_base: int
    worker_limit: int
    driver_limit: int
    persist_budget: float
    selection_budget: int
    shared: bool = True

    @property
    def threads_a_worker(self) -> int:
        """Threads of one worker."""
        return max(1, -(-self.threads // max(self.workers, 1)))

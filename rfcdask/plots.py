"""Drawings with matplotlib, which is imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rfcdask.svg.styles import LIGHT, short_title, styles_for, title_of

MARKERS = {"circle": "o", "diamond": "D", "square": "s", "triangle": "^", "down": "v"}


def pyplot() -> Any:
    """Return matplotlib's pyplot, or raise an ImportError that names the remedy."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'Drawing needs matplotlib: pip install "rfcdask[plots]".', name=error.name
        ) from error
    return plt


def axes_or_new(ax: Any, size: tuple[float, float] = (5.0, 3.5)) -> Any:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    _, made = pyplot().subplots(figsize=size, layout="constrained")
    return made


def plot_error_path(
    ax: Any,
    sizes: Any,
    sampled: Any,
    heldout: Any,
    chosen: int | None = None,
    refined: float | None = None,
) -> Any:
    """Draw the error along a selection, the kept size and the error after refinement."""
    ax = axes_or_new(ax)
    alone = "o" if len(sizes) == 1 else None
    ax.plot(sizes, heldout, color=LIGHT[0], marker=alone, label="held-out pairs")
    ax.plot(sizes, sampled, color=LIGHT[7], marker=alone, ls="--", label="sampled pairs")
    if chosen is not None:
        ax.axvline(chosen, color="0.6", lw=1, zorder=0)
    if chosen is not None and refined is not None:
        ax.plot([chosen], [refined], "D", color=LIGHT[1], label="after refinement")
    ax.set(xlabel="features kept", ylabel="relative error over pairs of rows", yscale="log")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_curve(ax: Any, x: Any, y: Any, xlabel: str, ylabel: str, **more: Any) -> Any:
    """Draw one line with points."""
    ax = axes_or_new(ax)
    ax.plot(x, y, **({"color": LIGHT[0], "marker": "o"} | more))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    return ax


def plot_history(ax: Any, history: Sequence[Mapping[str, float]]) -> Any:
    """Draw the mean loss of each epoch, on rows learned from and on rows held out."""
    epochs = [entry["epoch"] for entry in history]
    losses = [entry["loss"] for entry in history]
    ax = plot_curve(ax, epochs, losses, "epoch", "mean loss", label="rows learned from")
    held = [(entry["epoch"], entry["held_out_loss"]) for entry in history if len(entry) > 2]
    if held:
        ax.plot(*zip(*held, strict=True), "D-", color=LIGHT[1], label="rows held out")
        ax.legend(frameon=False, fontsize="small")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return ax


def plot_column(
    ax: Any, rows: Sequence[Mapping[str, Any]], column: str, *, label: str, log: bool
) -> Any:
    """Draw a column of a comparison against the number of features, a line a method."""
    ax = axes_or_new(ax)
    for method, style in styles_for([str(row["method"]) for row in rows]).items():
        mine = sorted(
            (row["n_components"], row[column], row.get(f"{column}_spread"))
            for row in rows
            if str(row["method"]) == method
        )
        x, y, spread = zip(*mine, strict=True)
        if None not in spread:
            ax.errorbar(x, y, spread, fmt="none", ecolor=style.hex, elinewidth=1, capsize=2)
        ax.plot(
            x,
            y,
            marker=MARKERS[style.shape],
            color=style.hex,
            lw=2 if style.strong else 1.2,
            label=title_of(method),
        )
    ax.set(xlabel="features", ylabel=label, xscale="log", yscale="log" if log else "linear")
    return ax


def plot_grid(
    ax: Any, values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]
) -> Any:
    """Draw a table of numbers as shaded cells with the numbers in them."""
    ax = axes_or_new(ax)
    image = ax.imshow(values, cmap="Blues", aspect="auto")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    middle = sum(image.get_clim()) / 2
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            if value == value:  # what was not tried is not a number
                tone = "white" if value > middle else "black"
                ax.text(j, i, f"{value:.3f}", ha="center", va="center", color=tone, fontsize=8)
    return ax


def plot_bars(ax: Any, names: Sequence[str], values: Sequence[float], xlabel: str) -> Any:
    """Draw a bar a name, the first at the top."""
    ax = axes_or_new(ax)
    ax.barh(range(len(names)), values, color=LIGHT[0])
    ax.set_yticks(range(len(names)), [short_title(name, 24) for name in names])
    ax.invert_yaxis()
    ax.set(xlabel=xlabel)
    return ax


def plot_stacks(ax: Any, bars: Mapping[str, Mapping[str, float]], xlabel: str) -> Any:
    """Draw a bar a name, made of its parts; a part looks the same in every bar."""
    ax = axes_or_new(ax, (7.0, 1.9 + 0.5 * len(bars)))
    starts = dict.fromkeys(bars, 0.0)
    for number, part in enumerate(dict.fromkeys(part for parts in bars.values() for part in parts)):
        widths = [parts.get(part, 0.0) for parts in bars.values()]
        # More parts than colours: the second time round they are hatched.
        hatch = "///" if number >= len(LIGHT) else None
        ax.barh(
            range(len(bars)),
            widths,
            left=list(starts.values()),
            color=LIGHT[number % len(LIGHT)],
            hatch=hatch,
            label=part,
        )
        starts = {name: starts[name] + width for name, width in zip(bars, widths, strict=True)}
    ax.set_yticks(range(len(bars)), list(bars))
    ax.set(xlabel=xlabel)
    # Below the bars, where it covers none.
    ax.legend(
        frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.35)
    )
    return ax

"""How the features were chosen: the error along the path, and the weights."""

from __future__ import annotations

from typing import Any

from rfcdask.report.measured import Results, section
from rfcdask.report.parts import cards, figure, note, part
from rfcdask.svg.areas import sorted_area
from rfcdask.svg.markup import Markup
from rfcdask.svg.numbers import count, finite, number, share
from rfcdask.svg.paths import error_path
from rfcdask.svg.styles import Style


def selection(results: Results) -> Markup | None:
    """Return the section; None when nothing was selected."""
    found = section(results, "selection")
    drawings = [drawing for drawing in (_path(found), _weights(found)) if drawing is not None]
    if not drawings:
        return None
    return part("How the features were chosen", "selection", cards(*drawings))


def _path(found: dict[str, Any]) -> Markup | None:
    sizes = [finite(value) or 0.0 for value in found.get("sizes") or ()]
    sampled, heldout = list(found.get("sampled") or ()), list(found.get("heldout") or ())
    if not sizes or not (sampled or heldout):
        return None
    chosen, refined = finite(found.get("chosen_size")), finite(found.get("refined_heldout"))
    drawing = error_path(sizes, sampled, heldout, chosen, refined)
    return figure("Error along the selection", drawing, note(_path_words(found, sizes, heldout)))


def _path_words(found: dict[str, Any], sizes: list[float], heldout: list[Any]) -> str:
    chosen, refined = finite(found.get("chosen_size")), finite(found.get("refined_heldout"))
    said = "The relative error of the kernel on pairs the selection looked at, and on pairs it did "
    said += "not see; both should fall together."
    known = {k: finite(v) for k, v in zip(sizes, heldout, strict=False)}
    before = known.get(chosen) if chosen is not None else None
    if before is not None:
        said += f" At {count(chosen)} features it was {number(before)} on unseen pairs"
        said += f", and {number(refined)} after refinement." if refined is not None else "."
    return said


def _weights(found: dict[str, Any]) -> Markup | None:
    weights = [w for value in found.get("weights") or () if (w := finite(value)) is not None]
    if not weights:
        return None
    label = f"Weights of the {count(len(weights))} features, largest first"
    drawing = sorted_area(label, weights, "features, by weight", "weight", Style(0))
    return figure("Weights of the kept features", drawing, note(_weight_words(weights)))


def _weight_words(weights: list[float]) -> str:
    falling = sorted(weights, reverse=True)
    total, tenth = sum(falling), max(1, len(falling) // 10)
    if total <= 0 or len(falling) < 10:
        return "Each feature counts in proportion to its weight."
    return (
        f"The heaviest tenth of the features carries {share(sum(falling[:tenth]) / total, 0)} of "
        "the weight; plain random features would all weigh the same."
    )

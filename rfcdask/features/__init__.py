"""Feature maps: scikit-learn transformers that approximate a kernel, and the list of all methods.

The list says what each method is, how it is made and what it chooses from. Names and what is known
of them import nothing heavy, so that the command line can offer them; the classes are imported
when they are first used. How a map is called for people and drawn is in :mod:`rfcdask.display`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfcdask.features.baselines import JLFeatures, NystroemFeatures, RandomFeatures
    from rfcdask.features.compressed import CompressedFeatures

__all__ = ["CompressedFeatures", "JLFeatures", "NystroemFeatures", "RandomFeatures"]

LABEL_WEIGHT = 0.3  # how much "compressed-labels" looks at the labels


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "compressed" if name == "CompressedFeatures" else "baselines"
    return getattr(import_module(f"{__name__}.{home}"), name)


@dataclass(frozen=True)
class Method:
    """One way to a feature map.

    Attributes
    ----------
    feature_map : str
        The class in :mod:`rfcdask.features`.
    parameters : mapping
        What makes the class this method.
    paper : bool
        Whether it is made as in the paper, by ``CompressedFeatures.paper``.
    """

    feature_map: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    paper: bool = False

    @property
    def selects(self) -> bool:
        """Whether features are selected among candidates, which is the expensive way."""
        return self.feature_map == "CompressedFeatures"

    @property
    def has_candidates(self) -> bool:
        """Whether it takes ``n_candidates``."""
        return self.selects or self.feature_map == "JLFeatures"

    @property
    def learns(self) -> bool:
        """Whether the features are trained together with the linear model on them."""
        return self.feature_map == "LearnedFeatures"


METHODS: dict[str, Method] = {
    "random": Method("RandomFeatures"),
    "jl": Method("JLFeatures"),
    "frank-wolfe": Method("CompressedFeatures", {"solver": "frank-wolfe"}, paper=True),
    "giga": Method("CompressedFeatures", {"solver": "giga"}, paper=True),
    "compressed": Method("CompressedFeatures"),
    "compressed-labels": Method("CompressedFeatures", {"label_weight": LABEL_WEIGHT}),
    "learned": Method("LearnedFeatures"),
    "nystroem": Method("NystroemFeatures", {"landmarks": "uniform"}),
    "nystroem-rpcholesky": Method("NystroemFeatures", {"landmarks": "rpcholesky"}),
}
"""All methods by name; "giga" and "frank-wolfe" are as in the paper, "compressed" and "learned" are
ours. The features of "learned" come with a ``KernelClassifier`` or ``KernelRegressor``."""


NEIGHBOURS = ("boosting",)
"""Models of other packages that are compared too: scikit-learn's gradient boosting, on a sample."""


def check_methods(names: str | Iterable[str]) -> None:
    """Raise unless these are names of methods."""
    unknown = [names] if isinstance(names, str) else [n for n in names if n not in METHODS]
    if unknown:
        raise ValueError(f"methods: {unknown[0]!r} is not in the list of {', '.join(METHODS)}.")


def make_map(
    name: str,
    n_components: int,
    *,
    kernel: Any = "rbf",
    gamma: float | str = "scale",
    n_candidates: int = 5000,
    label_weight: float = LABEL_WEIGHT,
    random_state: Any = None,
    **selection: Any,
) -> Any:
    """Return the unfitted map of a method.

    Parameters
    ----------
    name : str
        One of `METHODS` but "learned", whose map is not fitted by itself.
    n_components, kernel, gamma, random_state
        As every map takes them.
    n_candidates : int
        For the methods that have candidates.
    label_weight : float
        For "compressed-labels".
    **selection
        Further parameters of "compressed" and "compressed-labels", such as ``refine``.
    """
    method = METHODS[name]
    parameters = dict(method.parameters)
    if method.has_candidates:
        parameters["n_candidates"] = n_candidates
    if "label_weight" in parameters:
        parameters["label_weight"] = label_weight
    if method.selects and not method.paper:
        parameters |= selection
    kind = __getattr__(method.feature_map)
    make = kind.paper if method.paper else kind
    return make(n_components, kernel=kernel, gamma=gamma, random_state=random_state, **parameters)

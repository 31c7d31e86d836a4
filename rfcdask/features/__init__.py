"""Feature maps: scikit-learn transformers whose inner products approximate a kernel."""

from rfcdask.features.compressed import CompressedFeatures
from rfcdask.features.nystroem import NystroemFeatures
from rfcdask.features.random import JLFeatures, RandomFeatures

__all__ = ["CompressedFeatures", "JLFeatures", "NystroemFeatures", "RandomFeatures"]

"""Version 3 of the features: the columns of version 2 and two groups more. The first group
describes a problem, and one iteration of a tile's K loop, in units of the device's own limits, so
that a value means the same on another GPU. The second says what the compiler makes of a short K
loop."""

from __future__ import annotations

from diode_engine.features.feature_set import FeatureSet
from diode_engine.features.version_2 import VERSION_2, candidate
from diode_engine.features.version_3 import iteration, problem

VERSION_3 = FeatureSet(
    version=3,
    problem=VERSION_2.problem + problem.NAMES,
    candidate=VERSION_2.candidate,
    cross=VERSION_2.cross + iteration.NAMES,
    facts=(*VERSION_2.facts, "full_precision"),
    base_name=VERSION_2.base_name,
    describe=problem.describe,
    of_candidates=candidate.of_candidates,
    fill_cross=iteration.fill,
)

"""Version 2 of the features: 31 columns of a problem, 13 of a candidate, 39 of both."""

from __future__ import annotations

from diode_engine.features.feature_set import FeatureSet
from diode_engine.features.version_2 import candidate, cross, problem

VERSION_2 = FeatureSet(
    version=2,
    problem=problem.NAMES,
    candidate=candidate.NAMES,
    cross=cross.NAMES,
    facts=problem.ProblemFacts._fields,
    base_name="log2_base_us",
    describe=problem.describe,
    of_candidates=candidate.of_candidates,
    fill_cross=cross.fill,
)

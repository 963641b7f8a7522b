"""Sources of problems: layers of models, drawn sizes, grids, files."""

from diode_engine.core.operand import TYPES
from diode_engine.problems.sources.mix import (
    DEFAULT_SHARES,
    SOURCES,
    mixed,
    moderate,
    parse_source,
    problems_in,
)
from diode_engine.problems.sources.shapeset import read_shapeset, write_shapeset
from diode_engine.problems.sources.wanted import LAYOUTS, OPS, Wanted

__all__ = [
    "DEFAULT_SHARES",
    "LAYOUTS",
    "OPS",
    "SOURCES",
    "TYPES",
    "Wanted",
    "mixed",
    "moderate",
    "parse_source",
    "problems_in",
    "read_shapeset",
    "write_shapeset",
]

"""How well a model chooses, next to those it wants to replace."""

from diode_engine.validation.choosers import (
    ATEN,
    DEFAULT,
    MEDIAN,
    NEIGHBOUR,
    NV_HEURISTICS,
    ROOFLINE,
)
from diode_engine.validation.report import Report, evaluate

__all__ = [
    "ATEN",
    "DEFAULT",
    "MEDIAN",
    "NEIGHBOUR",
    "NV_HEURISTICS",
    "ROOFLINE",
    "Report",
    "evaluate",
]

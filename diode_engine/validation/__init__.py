"""How well a model chooses, compared with what it is to replace."""

from diode_engine.validation.choosers import (
    ATEN,
    DEFAULT,
    MEDIAN,
    NEIGHBOUR,
    NV_HEURISTICS,
    ROOFLINE,
)
from diode_engine.validation.evaluation import evaluate
from diode_engine.validation.reading import read_report
from diode_engine.validation.render import render
from diode_engine.validation.report import Report

__all__ = [
    "ATEN",
    "DEFAULT",
    "MEDIAN",
    "NEIGHBOUR",
    "NV_HEURISTICS",
    "ROOFLINE",
    "Report",
    "evaluate",
    "read_report",
    "render",
]

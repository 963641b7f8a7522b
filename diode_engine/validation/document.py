"""A report as JSON: versioned, with a table of the cases from which everything can be drawn."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from diode_engine.core.problem import Candidate

if TYPE_CHECKING:
    from diode_engine.validation.report import Case, Report

FORMAT = "diode-validation"
VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """As docs/validation.md describes it. A case's environment is its place in `environments`."""
    environments = list(dict.fromkeys(case.environment for case in report.cases))
    places = {environment: i for i, environment in enumerate(environments)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": report.model,
        "hardware": list(report.hardware),
        "unseen": report.unseen,
        "problems": report.problems,
        "candidates": report.candidates,
        "left_out": report.left_out,
        "unmeasured": report.unmeasured,
        "choosers": [
            {**asdict(row), "top": {str(k): asdict(summary) for k, summary in row.top.items()}}
            for row in report.rows
        ],
        "errors": None
        if report.errors is None
        else {
            name: None if math.isnan(value) else value
            for name, value in asdict(report.errors).items()
        },
        "calibration": _calibration(report),
        "noise": asdict(report.noise),
        "environments": [environment.to_dict() for environment in environments],
        "cases": [_case(case, places[case.environment]) for case in report.cases],
        "notes": list(report.notes),
    }


def _calibration(report: Report) -> dict[str, Any] | None:
    if report.calibration is None:
        return None
    out = asdict(report.calibration)
    for name in ("surest", "adaptive"):
        out[name] = {str(key): value for key, value in out[name].items()}
    return out


def _case(case: Case, environment: int) -> dict[str, Any]:
    compiled = case.compiled
    return {
        "key": case.problem.key,
        "problem": case.problem.to_dict(),
        "environment": environment,
        "efficiency": None
        if case.efficiency is None
        else {str(k): value for k, value in case.efficiency.items()},
        "confidence": case.confidence,
        "chosen": _candidate(case.chosen, case.chosen_us, case.chosen_predicted_us),
        "best": _candidate(case.best, case.best_us, case.best_predicted_us),
        "others": dict(case.others),
        "compiled": None
        if compiled is None or compiled.choice is None
        else {
            **compiled.choice.to_dict(),
            "measured": compiled.measured,
            "confidence": compiled.confidence,
        },
    }


def _candidate(
    candidate: Candidate | None, us: float | None, predicted_us: float | None
) -> dict[str, Any] | None:
    if candidate is None:
        return None
    return {**candidate.to_dict(), "us": us, "predicted_us": predicted_us}

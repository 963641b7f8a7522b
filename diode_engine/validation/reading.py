"""Reads what `Report.to_dict` and `CrossValidation.to_dict` have written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import decode, decode_fields
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.documents import shortened
from diode_engine.errors import ReportError
from diode_engine.validation import cross_validation, report
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.report import KS, VERSION, Case, CompileTime, Report


def read_report(document: Mapping[str, Any], what: str = "The report") -> Report | CrossValidation:
    """The report in this document; `what` names it in errors. Raises ReportError where it is not a
    report of a validation, is of a newer version, or is not as Diode writes it."""
    try:
        kind, version = document["format"], document["version"]
        if kind not in (report.FORMAT, cross_validation.FORMAT) or type(version) is not int:
            raise ReportError(f"{what} is not a report of a validation.")
        if version > VERSION:
            raise ReportError(
                f"{what} is of version {version}, this Diode reads up to {VERSION}; update Diode."
            )
        return _report(document) if kind == report.FORMAT else _crossed(document)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{what} is not as Diode writes it ({shortened(repr(error))}); validate again."
        ) from None


def _crossed(document: Mapping[str, Any]) -> CrossValidation:
    parts = {str(name): _report(part) for name, part in document["parts"].items()}
    if not parts:
        raise ValueError("a cross-validation has no parts")
    return CrossValidation(str(document["kind"]), str(document["family"]), parts)


def _report(document: Mapping[str, Any]) -> Report:
    environments = [Environment.from_dict(given) for given in document["environments"]]
    errors = document["errors"]
    if isinstance(errors, dict):
        errors = {name: math.nan if us is None else us for name, us in errors.items()}
    cases = tuple(_case(given, environments) for given in document["cases"])
    fields = {**document, "rows": document["choosers"], "errors": errors, "cases": ()}
    found: Report = decode_fields(Report, fields)
    if not found.rows:
        raise ValueError("there are no choosers")
    for place, row in enumerate(found.rows):
        _check_complete(row.top, (1,) if place else KS)
    return replace(found, cases=cases)


def _case(given: Mapping[str, Any], environments: list[Environment]) -> Case:
    best, chosen = given["best"], given["chosen"] or {}
    efficiency = decode(Mapping[int, float] | None, given["efficiency"])
    if efficiency is not None:
        _check_complete(efficiency, KS)
    compiled = CompileTime(None, False, None)  # the model can say nothing
    if given["compiled"] is not None:
        confidence = decode(float | None, given["compiled"]["confidence"])
        measured = given["compiled"]["measured"] is True
        compiled = CompileTime(_candidate(given["compiled"]), measured, confidence)
    return Case(
        problem=Problem.from_dict(given["problem"]),
        environment=environments[given["environment"]],
        efficiency=efficiency,
        confidence=decode(float | None, given["confidence"]),
        chosen=_candidate(chosen) if chosen else None,
        chosen_us=decode(float | None, chosen.get("us")),
        chosen_predicted_us=decode(float | None, chosen.get("predicted_us")),
        best=_candidate(best),
        best_us=decode(float, best["us"]),
        best_predicted_us=decode(float | None, best["predicted_us"]),
        others=decode(Mapping[str, float], given["others"]),
        compiled=compiled,
    )


def _candidate(given: Mapping[str, Any]) -> Candidate:
    return Candidate.from_dict({name: given[name] for name in ("template", "kwargs")})


def _check_complete(found: Mapping[int, Any], ks: Iterable[int]) -> None:
    """Raises ValueError where there is no figure of the first k choices, for one of these k."""
    for k in ks:
        if k not in found:
            raise ValueError(f"there is no figure of the first {k} choices")

"""Reads what `Report.to_dict` and `CrossValidation.to_dict` have written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from diode_engine.core.checks import decode_fields
from diode_engine.core.hardware import Environment
from diode_engine.documents import shortened
from diode_engine.errors import ReportError
from diode_engine.validation import cross_validation, report
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.report import KS, VERSION, Report


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
    cases = [
        {**given, "environment": environments[given["environment"]]} for given in document["cases"]
    ]
    found: Report = decode_fields(Report, {**document, "errors": errors, "cases": cases})
    if not found.choosers:
        raise ValueError("there are no choosers")
    for place, row in enumerate(found.choosers):
        _check_complete(row.top, (1,) if place else KS)
    for case in found.cases:
        if case.efficiency is not None:
            _check_complete(case.efficiency, KS)
        if case.best.us is None:
            raise ValueError("the best candidate has no time")
    return found


def _check_complete(found: Mapping[int, Any], ks: Iterable[int]) -> None:
    """Raises ValueError where there is no figure of the first k choices, for one of these k."""
    for k in ks:
        if k not in found:
            raise ValueError(f"there is no figure of the first {k} choices")

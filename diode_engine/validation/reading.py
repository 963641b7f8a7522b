"""Reads what `Report.to_dict` and `CrossValidation.to_dict` have written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.documents import shortened
from diode_engine.errors import ReportError
from diode_engine.validation import cross_validation, report
from diode_engine.validation.calibration import Adaptive, Bin, Calibration
from diode_engine.validation.compile_time import CompileTime
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.metrics import Errors, Summary
from diode_engine.validation.noise import Noise
from diode_engine.validation.report import KS, VERSION, Case, ChooserRow, Report


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
    told = document["unmeasured"] is not None
    errors, noise = _figures(document["errors"]), _figures(document["noise"])
    calibration = _figures(document["calibration"])
    rows = tuple(_row(given) for given in document["choosers"])
    if not rows:
        raise ValueError("there are no choosers")
    _complete(rows[0].top, KS)
    return Report(
        model=str(document["model"]),
        hardware=tuple(map(str, document["hardware"])),
        unseen=document["unseen"],
        problems=document["problems"],
        candidates=document["candidates"],
        left_out=document["left_out"],
        rows=rows,
        errors=None if errors is None else _errors(errors),
        calibration=None if calibration is None else _calibration(calibration),
        noise=_noise(noise),
        cases=tuple(_case(given, environments, told) for given in document["cases"]),
        notes=tuple(map(str, document["notes"])),
    )


def _row(given: Mapping[str, Any]) -> ChooserRow:
    top = {int(k): _summary(summary) for k, summary in given["top"].items()}
    _complete(top, (1,))
    return ChooserRow(
        chooser=str(given["chooser"]),
        timed=_number(given["timed"]) or 0.0,
        answered=given["answered"],
        speed=_number(given["speed"]),
        top=top,
        groups={
            kind: {name: _summary(summary) for name, summary in found.items()}
            for kind, found in given["groups"].items()
        },
    )


def _summary(given: Mapping[str, Any]) -> Summary:
    geomean, p10, worst = (_certain(given[name]) for name in ("geomean", "p10", "worst"))
    return Summary(given["problems"], geomean, p10, worst)


def _errors(given: Mapping[str, Any]) -> Errors:
    timings, *figures = (given[field.name] for field in fields(Errors))
    return Errors(timings, *(math.nan if value is None else value for value in figures))


def _calibration(given: Mapping[str, Any]) -> Calibration:
    return Calibration(
        problems=given["problems"],
        bins=tuple(Bin(b["problems"], b["confidence"], b["reached"]) for b in given["bins"]),
        error=given["error"],
        chance=given["chance"],
        surest={float(share): _summary(found) for share, found in given["surest"].items()},
        adaptive={
            float(asked): Adaptive(found["timed"], found["reached"], _summary(found["summary"]))
            for asked, found in given["adaptive"].items()
        },
    )


def _noise(given: Mapping[str, Any] | None) -> Noise:
    if given is None:
        raise TypeError("noise must be an object")
    return Noise(**{field.name: given[field.name] for field in fields(Noise)})


def _case(given: Mapping[str, Any], environments: list[Environment], told: bool) -> Case:
    """`told` says whether the report has what the model would choose at compile time."""
    efficiency, best = given["efficiency"], _taken(given["best"])
    candidate, best_us, best_predicted_us = best
    chosen, chosen_us, chosen_predicted_us = _taken(given["chosen"])
    if efficiency is not None:
        efficiency = {int(k): _certain(value) for k, value in efficiency.items()}
        _complete(efficiency, KS)
    if candidate is None or best_us is None:
        raise TypeError("the best candidate must have a time")
    return Case(
        problem=Problem.from_dict(given["problem"]),
        environment=environments[given["environment"]],
        efficiency=efficiency,
        confidence=_number(given["confidence"]),
        chosen=chosen,
        chosen_us=chosen_us,
        chosen_predicted_us=chosen_predicted_us,
        best=candidate,
        best_us=best_us,
        best_predicted_us=best_predicted_us,
        others={name: _number(value) or 0.0 for name, value in given["others"].items()},
        compiled=_compiled(given["compiled"]) if told else None,
    )


def _complete(found: Mapping[int, Any], ks: Iterable[int]) -> None:
    """Raises ValueError where there is no figure of the first k choices, for one of these k."""
    for k in ks:
        if k not in found:
            raise ValueError(f"there is no figure of the first {k} choices")


def _compiled(given: Mapping[str, Any] | None) -> CompileTime:
    if given is None:  # the model could say nothing
        return CompileTime(None, False, None)
    return CompileTime(_candidate(given), given["measured"] is True, _number(given["confidence"]))


def _taken(
    given: Mapping[str, Any] | None,
) -> tuple[Candidate | None, float | None, float | None]:
    """A candidate, its time and its predicted time."""
    if given is None:
        return None, None, None
    return _candidate(given), _number(given["us"]), _number(given["predicted_us"])


def _candidate(given: Mapping[str, Any]) -> Candidate:
    return Candidate.from_dict({name: given[name] for name in ("template", "kwargs")})


def _number(value: Any) -> float | None:
    """The number, from 0 up, or None. Raises TypeError for anything else."""
    if value is not None and (type(value) not in (int, float) or value < 0):
        raise TypeError(f"{shortened(repr(value))} is no number from 0 up")
    return value  # type: ignore[no-any-return]


def _certain(value: Any) -> float:
    """The number, from 0 up. Raises TypeError for anything else."""
    number = _number(value)
    if number is None:
        raise TypeError("a figure is missing")
    return number


def _figures(given: Any) -> Mapping[str, Any] | None:
    """The object (or None). Raises TypeError where a value in it, at any depth, is anything else
    than a number, None, a list or an object."""
    inner = [given]
    while inner:
        value = inner.pop()
        if isinstance(value, dict | list):
            inner += value.values() if isinstance(value, dict) else value
        elif value is not None and type(value) not in (int, float):
            raise TypeError(f"{shortened(repr(value))} is no number")
    if not isinstance(given, dict | None):
        raise TypeError("figures must be an object")
    return given

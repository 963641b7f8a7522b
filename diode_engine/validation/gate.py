"""The gate: what a model must fulfil to become the one that is taken for its hardware.

It must load; have been made with the installed torch and Triton; choose no worse than the model
that is taken now (or ATen, where there is none) on problems that neither has seen; and its
confidence must agree with the results. Where the hardware has no default, the model that is taken
now may be another GPU's. A person may overrule all of these but the first, with a reason.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import HistoryAction, ModelStatus, ModelVersion
from diode_engine.validation.choosers import ATEN
from diode_engine.validation.evaluation import evaluate
from diode_engine.validation.report import Report

MIN_PROBLEMS = 20  # held out, with timings: on fewer, one problem decides
# A model that is this much below the present default still counts as no worse: models that differ
# only in their seed differ by more (docs/models.md, Results).
TOLERANCE = 0.003
TOLERANCE_P10 = 0.01
MAX_CALIBRATION_ERROR = 0.05  # above the error that exact probabilities would show by chance
# The checks on the model itself, not on what is installed or timed today.
_JUDGED = ("efficiency", "calibration")


@dataclass(frozen=True)
class GateCheck:
    """One check of the gate, with a sentence on its result."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class GateVerdict:
    """What the gate decides on a model. `against` is what it was compared with: a model's
    reference, or ATen; `at` is in UTC."""

    model: str
    against: str
    checks: tuple[GateCheck, ...]
    at: str

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it was refused, in sentences."""
        return tuple(check.found for check in self.checks if not check.passed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "checks": [asdict(c) for c in self.checks], "passed": self.passed}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> GateVerdict:
        """From what `to_dict` gave. Raises KeyError or TypeError for anything else."""
        checks = tuple(GateCheck(c["name"], bool(c["passed"]), c["found"]) for c in given["checks"])
        return cls(given["model"], given["against"], checks, given["at"])


@dataclass(frozen=True)
class _Figures:
    """How well something chooses: geometric mean and 10th percentile of its efficiency."""

    geomean: float
    p10: float
    told: bool = False  # by the model's manifest, and not measured now

    def __str__(self) -> str:
        source = ", by its manifest" if self.told else ""
        return f"{self.geomean:.3f} (10th percentile {self.p10:.3f}{source})"


def judge(model: ModelVersion, table: TimingTable, against: ModelVersion | None) -> GateVerdict:
    """The gate's verdict on a model.

    Of the table, the held-out problems of the model's hardware count. `against` is the present
    default, None for ATen. For a model that has seen the held-out problems, the figures in its
    manifest count: they are of a model made the same way without them. Raises ModelError where the
    model cannot be loaded.
    """
    predictor = Predictor.load(model.folder)
    manifest = model.manifest
    checks = [GateCheck("loads", True, "Its files are whole and of formats that this Diode knows.")]
    different = registry.differences(manifest)
    checks.append(
        GateCheck(
            "software",
            not different,
            f"It was made with other software than is installed ({', '.join(different)})."
            if different
            else "It was made with the torch and Triton that are installed, as far as they are.",
        )
    )
    rows = gate_problems(table, manifest, None if against is None else against.manifest)
    problems = len(set(rows.problem[rows.failure == 0].tolist()))
    checks.append(
        GateCheck(
            "problems",
            problems >= MIN_PROBLEMS,
            f"There are timings of {problems} held-out problems of {manifest.hardware.name}"
            + (
                "."
                if problems >= MIN_PROBLEMS
                else f"; a model is judged on {MIN_PROBLEMS} or more: collect or import some."
            ),
        )
    )
    other = ATEN if against is None else against.reference
    if problems >= MIN_PROBLEMS:
        report = evaluate(rows, predictor, name=model.reference)
        other, check = _no_worse(manifest, report, rows, against)
        checks += [check, *_calibrated(manifest, report)]
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return GateVerdict(model.reference, other, tuple(checks), now)


def gate_problems(
    table: TimingTable, manifest: Manifest, against: Manifest | None = None
) -> TimingTable:
    """The rows on which a model of this manifest is judged: of problems that were held out both
    from it and from the model that it is compared with, on its hardware, with its Triton where
    there are such rows."""
    device = [e.hardware.slug == manifest.hardware.slug for e in table.environments]
    compiled = [e.triton in manifest.triton for e in table.environments]
    rows = np.array(device, np.bool_)[table.environment]
    same = rows & np.array(compiled, np.bool_)[table.environment]
    by = manifest.held_out_by
    if against is not None:
        by = tuple(way for way in by if way in against.held_out_by)
    return split(table.take(same if same.any() else rows), by)[1]


def _no_worse(
    manifest: Manifest, report: Report, rows: TimingTable, against: ModelVersion | None
) -> tuple[str, GateCheck]:
    """What the model was compared with, and the check's result."""
    ours = _told(manifest) if manifest.everything else _measured(report)
    name, theirs = ATEN, None
    if against is not None:
        with contextlib.suppress(ModelError):  # a default that cannot be loaded is not taken
            theirs = _of(against, rows)
            name = against.reference
    if theirs is None and (aten := report.row(ATEN)) is not None:
        name, theirs = ATEN, _Figures(aten.top[1].geomean, aten.top[1].p10)
    if ours is None:
        found = (
            "It has seen the problems that models are judged on, and its manifest does not have "
            "the figures of a model that was made without them."
        )
        return name, GateCheck("efficiency", False, found)
    if theirs is None:
        return name, GateCheck(
            "efficiency", True, f"Its efficiency is {ours}; there is nothing to compare it with."
        )
    worse = ours.geomean < theirs.geomean - TOLERANCE or ours.p10 < theirs.p10 - TOLERANCE_P10
    found = f"Its efficiency is {ours}, that of {name} {theirs}."
    return name, GateCheck("efficiency", not worse, found)


def _of(model: ModelVersion, rows: TimingTable) -> _Figures | None:
    predictor = Predictor.load(model.folder)
    hardware = rows.environments[int(rows.environment[0])].hardware
    if model.manifest.everything and model.slug == hardware.slug:
        return _told(model.manifest)
    return _measured(evaluate(rows, predictor.predict_table(rows), name=model.reference))


def _told(manifest: Manifest) -> _Figures | None:
    mean, p10 = (manifest.metrics.get(key) for key in ("efficiency", "efficiency_p10"))
    if not isinstance(mean, float) or not isinstance(p10, float):
        return None
    return _Figures(mean, p10, told=True)


def _measured(report: Report) -> _Figures:
    return _Figures(report.rows[0].top[1].geomean, report.rows[0].top[1].p10)


def _calibrated(manifest: Manifest, report: Report) -> list[GateCheck]:
    """The check whether its confidence agrees with the results. There is none for a model without
    confidence, or for one that has seen the problems."""
    if report.calibration is None or manifest.everything:
        return []
    error, chance = report.calibration.error, report.calibration.chance
    return [
        GateCheck(
            "calibration",
            error <= MAX_CALIBRATION_ERROR + chance,
            f"The calibration error of its confidence is {error:.3f}. Chance alone would make "
            f"about {chance:.3f}; {MAX_CALIBRATION_ERROR} more than that is allowed.",
        )
    ]


def promote(
    model: ModelVersion,
    table: TimingTable,
    *,
    force: bool = False,
    reason: str = "",
    check: Callable[[], None] = lambda: None,
) -> GateVerdict:
    """Makes the model the default of its hardware where the gate passes it, or with `force`, and
    returns the verdict. The registry keeps the verdict and the reason.

    `check` may raise, after the model was judged and before anything is changed. Raises ModelError
    where the model cannot be loaded; RegistryError where it is not registered or is the default
    already, or the registry cannot be written.
    """
    now = present_default(model)
    if now == model:
        raise RegistryError(f"{model.reference} is the default of {model.slug} already.")
    verdict = judge(model, table, now or _of_another_gpu(model))
    check()
    _must_still_be(model, now)
    refused = any(c.name in _JUDGED and not c.passed for c in verdict.checks)
    if verdict.passed or refused:
        status = ModelStatus.VALIDATED if verdict.passed else ModelStatus.REJECTED
        registry.set_verdict(model, status, verdict.to_dict())
    if verdict.passed or force:
        registry.set_alias(
            registry.DEFAULT, model, action=HistoryAction.PROMOTE, reason=reason,
            forced=not verdict.passed,
        )  # fmt: skip
    return verdict


def overrule(model: ModelVersion, verdict: GateVerdict, *, reason: str) -> GateVerdict:
    """Makes the model the default of its hardware against the verdict that `promote` returned;
    nothing is judged again. Returns the verdict. Raises RegistryError where the verdict is on
    another model, the model is the default already, or another model has become the default
    since."""
    now = present_default(model)
    if verdict.model != model.reference:
        raise RegistryError(f"That verdict is on {verdict.model}, not on {model.reference}.")
    if now == model:
        raise RegistryError(f"{model.reference} is the default of {model.slug} already.")
    later = [event for event in registry.history(model.slug)
             if event.alias == registry.DEFAULT and event.at > verdict.at]  # fmt: skip
    if later:
        raise RegistryError(
            f"The default of {model.slug} has changed since {model.reference} was judged: promote "
            "it again, which judges it again."
        )
    registry.set_alias(
        registry.DEFAULT,
        model,
        action=HistoryAction.PROMOTE,
        reason=reason,
        forced=not verdict.passed,
    )
    return verdict


def _must_still_be(model: ModelVersion, default: ModelVersion | None) -> None:
    now = present_default(model)
    if now != default:
        raise RegistryError(
            f"The default of {model.slug} has changed while {model.reference} was judged: promote "
            "it again."
        )


def _of_another_gpu(model: ModelVersion) -> ModelVersion | None:
    """The model of another GPU that is taken for this hardware where it has no model of its own;
    None where it has one, or no other can be taken."""
    manifest = model.manifest
    others = [m.model for m in registry.matches(manifest.hardware, manifest.purpose)
              if m.model != model]  # fmt: skip
    return others[0] if others and others[0].slug != model.slug else None


def present_default(model: ModelVersion) -> ModelVersion | None:
    """The model that an alias makes the default of this model's hardware; None where there is none.
    Raises ModelError where the given model's manifest cannot be read."""
    manifest = model.manifest
    for match in registry.matches(manifest.hardware, manifest.purpose):
        if match.default_of is not None and match.model.slug == model.slug:
            return match.model
    return None

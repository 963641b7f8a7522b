"""The gate: what a model must fulfil to become the one that is taken for a GPU.

It must load, and choose no worse than the model that this GPU takes otherwise (or ATen, where there
is none) on problems that neither has seen: over all of them, on each kind of them, and in the share
on which its choice is slower than the library's kernel. Its confidence must agree with the results.
A person may overrule all of these but the first, with a reason.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.core.checks import encode_fields
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import HistoryAction, ModelStatus, ModelVersion
from diode_engine.validation import paired
from diode_engine.validation.calibration import calibration
from diode_engine.validation.choosers import ATEN
from diode_engine.validation.metrics import Summary, Values
from diode_engine.validation.paired import Choices
from diode_engine.validation.pool import CandidatePool

MIN_PROBLEMS = 20  # held out, with timings, of all and of a kind: on fewer, one problem decides
# A model that is this much below the other still counts as no worse: models that differ only in
# their seed differ by more (docs/notes/models.md).
TOLERANCE = 0.003
TOLERANCE_P10 = 0.01
MAX_CALIBRATION_ERROR = 0.05  # above the error that exact probabilities would show by chance
# The checks that are not on the model itself, but on what is installed or timed today.
_NOT_JUDGED = ("loads", "software", "problems")


@dataclass(frozen=True)
class GateCheck:
    """One check of the gate, with a sentence on its result."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class GateVerdict:
    """What the gate decides on a model. `against` is what it was compared with: a model's
    reference, or ATen; `at` is in UTC; `hardware` is the slug of the GPU that it was judged for,
    empty in a verdict of an earlier Diode."""

    model: str
    against: str
    checks: tuple[GateCheck, ...]
    at: str = ""
    hardware: str = ""

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it was refused, in sentences. One that begins with a figure is of a kind of problems,
        whose name comes before it."""
        return tuple(
            found if (found := check.found)[0].isalpha() else f"{check.name}: {found}"
            for check in self.checks if not check.passed
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**encode_fields(self), "passed": self.passed}


def judge(
    model: ModelVersion,
    table: TimingTable,
    against: ModelVersion | None,
    slug: str | None = None,
) -> GateVerdict:
    """The gate's verdict on a model, for one of its GPUs (None: that of its folder).

    Of the table, the held-out problems of this GPU count. `against` is the model that it takes
    otherwise, None for ATen. For a model that has seen the held-out problems, the figures in its
    manifest count: they are of a model made the same way without them. Raises ModelError where the
    model cannot be loaded, RegistryError where it has no record of the GPU.
    """
    hardware = _find_gpu(model, slug or model.slug)
    predictor = Predictor.load(model.folder, hardware)
    manifest = model.manifest
    checks = [GateCheck("loads", True, "Its files are whole and of formats that this Diode knows.")]
    different = registry.differences(manifest)
    made_with = (
        "Warning: it was trained with other versions than the installed ones "
        f"({', '.join(different)})."
        if different
        else "It was trained with the installed torch and Triton."
    )
    checks.append(GateCheck("software", True, made_with))
    other = None if against is None else _load_or_none(against, hardware)
    theirs = None if against is None or other is None else against.manifest
    rows = gate_problems(table, manifest, hardware.slug, theirs)
    problems = rows.take(rows.failure == 0).count_problems()
    enough = problems >= MIN_PROBLEMS
    there = f"There are timings of {problems} held-out problems of {hardware.name}"
    more = f"; a model is judged on {MIN_PROBLEMS} or more: collect or import some."
    checks.append(GateCheck("problems", enough, there + ("." if enough else more)))
    name = ATEN
    if enough:
        pool = CandidatePool.make(rows)
        compared = _Side.make(paired.choose_by_library(pool), None, hardware)
        if against is not None and other is not None:
            its = _Side.make(paired.choose_by_model(pool, other, hardware), theirs, hardware)
            if its.efficiency is not None:
                name, compared = against.reference, its
        ours = _Side.make(paired.choose_by_model(pool, predictor, hardware), manifest, hardware)
        checks += _compare(pool, ours, compared, name)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return GateVerdict(model.reference, name, tuple(checks), now, hardware.slug)


def _find_gpu(model: ModelVersion, slug: str) -> Hardware:
    """The hardware of this slug that the model has a record of."""
    for record in model.manifest.records:
        if record.hardware.slug == slug:
            return record.hardware
    raise RegistryError(
        f"{model.reference} has no record of {slug}, but of: {', '.join(model.manifest.gpu_names)}."
    )


def _load_or_none(model: ModelVersion, hardware: Hardware) -> Predictor | None:
    """None where it cannot be loaded: then it is not taken."""
    try:
        return Predictor.load(model.folder, hardware)
    except ModelError:
        return None


def gate_problems(
    table: TimingTable,
    manifest: Manifest,
    slug: str | None = None,
    against: Manifest | None = None,
) -> TimingTable:
    """The rows on which a model of this manifest is judged for a GPU (None: the manifest's
    hardware): of problems that were held out both from it and from the model that it is compared
    with, on this GPU, with the model's Triton where there are such rows. Problems are held out by
    their sizes, so those of one GPU are held out on every other."""
    rows, _ = comparable_rows(table, manifest, slug or manifest.hardware.slug)
    by = manifest.held_out_by
    if against is not None:
        by = tuple(way for way in by if way in against.held_out_by)
    return split(rows, by)[1]


def comparable_rows(table: TimingTable, manifest: Manifest, slug: str) -> tuple[TimingTable, bool]:
    """The rows of the GPU of this slug with a Triton that the model was trained on, and True; where
    there are none, all rows of the GPU, and False."""
    rows = table.in_environments(lambda e: e.hardware.slug == slug)
    same = rows.in_environments(lambda e: e.triton in manifest.triton)
    return (same, True) if len(same) else (rows, False)


@dataclass(frozen=True)
class _Side:
    """One of the two that are compared: its choices, and its efficiency's geometric mean and 10th
    percentile; None where these are not known. `seen` says whether it has learned from the GPU's
    timings of the problems, so that its choices say nothing, and its efficiency is its
    manifest's."""

    choices: Choices
    efficiency: tuple[float, float] | None
    seen: bool = False

    @classmethod
    def make(cls, choices: Choices, manifest: Manifest | None, hardware: Hardware) -> _Side:
        """Of a model with this manifest; None: of the library."""
        if manifest is not None and manifest.everything:
            record = manifest.record_for(hardware)
            if record.hardware.slug == hardware.slug:
                mean, p10 = (record.metrics.get(key) for key in ("efficiency", "efficiency_p10"))
                if isinstance(mean, float) and isinstance(p10, float):
                    return cls(choices, (mean, p10), seen=True)
                return cls(choices, None, seen=True)
        measured = choices.first[~np.isnan(choices.first)]
        if not len(measured):
            return cls(choices, None)
        found = Summary.make(measured)
        return cls(choices, (found.geomean, found.p10))

    def __str__(self) -> str:
        assert self.efficiency is not None
        mean, p10 = self.efficiency
        return f"{mean:.3f} (10th percentile {p10:.3f}{', by its manifest' if self.seen else ''})"


def _compare(pool: CandidatePool, ours: _Side, theirs: _Side, name: str) -> list[GateCheck]:
    """The checks on a model's choices against those of what is called `name`."""
    checks = [_check_efficiency(ours, theirs, name)]
    if ours.seen:
        return checks
    checks.append(_check_slower(ours.choices, theirs, name))
    if not theirs.seen:
        checks += _check_kinds(pool, ours.choices.first, theirs.choices.first, name)
    return [*checks, *_check_calibration(ours.choices)]


def _check_efficiency(ours: _Side, theirs: _Side, name: str) -> GateCheck:
    if ours.efficiency is None:
        found = (
            "It was trained on the held-out problems, and its manifest has no figures of a model "
            "that was made without them."
        )
        return GateCheck("efficiency", False, found)
    if theirs.efficiency is None:
        found = f"Its efficiency is {ours}; there is nothing to compare it with."
        return GateCheck("efficiency", True, found)
    (mean, p10), (their_mean, their_p10) = ours.efficiency, theirs.efficiency
    worse = mean < their_mean - TOLERANCE or p10 < their_p10 - TOLERANCE_P10
    found = f"Its efficiency is {ours}, that of {name} {theirs}."
    return GateCheck("efficiency", not worse, found)


def _check_slower(ours: Choices, theirs: _Side, name: str) -> GateCheck:
    """The check whether a compile takes a kernel that is slower than the library's on no more
    problems than before. Without another model the share is shown: the library is never slower than
    itself."""
    found = (
        f"On {100 * ours.slower.mean():.1f} % of the problems the kernel that it takes is over "
        f"{100 * paired.SLOWER:.0f} % slower than the library's"
    )
    if name == ATEN or theirs.seen:
        return GateCheck("slower", True, f"{found}.")
    before = theirs.choices.slower
    found += f"; with {name} on {100 * before.mean():.1f} %."
    return GateCheck("slower", paired.is_chance(ours.slower, before), found)


def _check_kinds(pool: CandidatePool, ours: Values, theirs: Values, name: str) -> list[GateCheck]:
    """A check for each kind of problems of which there are enough."""
    known = ~np.isnan(ours) & ~np.isnan(theirs)
    checks = []
    for kind, there in paired.split_by_kind(pool, known, MIN_PROBLEMS):
        found = paired.compare(ours[there], theirs[there])
        sentence = (
            f"{found.ours:.3f} on {found.problems} problems; {name}: {found.theirs:.3f} "
            f"(up to {100 * found.chance:.1f} % may be chance)."
        )
        checks.append(GateCheck(kind, not found.worse, sentence))
    return checks


def _check_calibration(choices: Choices) -> list[GateCheck]:
    """The check whether its confidence agrees with the results. There is none for a model without
    confidence."""
    found = calibration(choices.reaches, choices.efficiency)
    if found is None:
        return []
    return [
        GateCheck(
            "calibration",
            found.error <= MAX_CALIBRATION_ERROR + found.chance,
            f"The calibration error of its confidence is {found.error:.3f}. Chance alone would "
            f"make about {found.chance:.3f}; {MAX_CALIBRATION_ERROR} more than that is allowed.",
        )
    ]


def promote(
    model: ModelVersion,
    table: TimingTable,
    slug: str | None = None,
    *,
    force: bool = False,
    reason: str = "",
    check: Callable[[], None] = lambda: None,
) -> GateVerdict:
    """Makes the model the default of one of its GPUs (None: that of its folder) where the gate
    passes it there, or with `force`, and returns the verdict. The registry keeps the verdict and
    the reason.

    `check` may raise, after the model was judged and before anything is changed. Raises ModelError
    where the model cannot be loaded; RegistryError where it is not registered, has no record of the
    GPU or is the default already, or the registry cannot be written.
    """
    slug = slug or model.slug
    now = present_default(model, slug)
    if now == model:
        raise RegistryError(f"{model.reference} is the default of {slug} already.")
    verdict = judge(model, table, find_taken_otherwise(model, slug), slug)
    check()
    if present_default(model, slug) != now:
        raise RegistryError(
            f"The default of {slug} has changed while {model.reference} was judged: promote it "
            "again."
        )
    refused = any(c.name not in _NOT_JUDGED and not c.passed for c in verdict.checks)
    if verdict.passed or refused:
        status = ModelStatus.VALIDATED if verdict.passed else ModelStatus.REJECTED
        registry.set_verdict(model, status, verdict.to_dict(), slug)
    if verdict.passed or force:
        _take(model, slug, verdict, reason)
    return verdict


def overrule(model: ModelVersion, verdict: GateVerdict, slug: str, *, reason: str) -> GateVerdict:
    """Makes the model the default of the GPU against the verdict that `promote` returned; nothing
    is judged again. Returns the verdict. Raises RegistryError where the verdict is on another model
    or GPU, the model is the default already, or another model has become the default since."""
    if (verdict.model, verdict.hardware or model.slug) != (model.reference, slug):
        raise RegistryError(
            f"That verdict is on {verdict.model} for {verdict.hardware or model.slug}, not on "
            f"{model.reference} for {slug}."
        )
    if present_default(model, slug) == model:
        raise RegistryError(f"{model.reference} is the default of {slug} already.")
    later = [event for event in registry.history(slug)
             if event.alias == registry.DEFAULT and event.at > verdict.at]  # fmt: skip
    if later:
        raise RegistryError(
            f"The default of {slug} has changed since {model.reference} was judged: promote "
            "it again, which judges it again."
        )
    _take(model, slug, verdict, reason)
    return verdict


def _take(model: ModelVersion, slug: str, verdict: GateVerdict, reason: str) -> None:
    registry.set_alias(
        registry.DEFAULT,
        model,
        slug,
        action=HistoryAction.PROMOTE,
        reason=reason,
        forced=not verdict.passed,
    )


def find_taken_otherwise(model: ModelVersion, slug: str) -> ModelVersion | None:
    """The model that would be taken for this GPU without the given one, whatever it was made on;
    None where no other can be loaded."""
    for match in registry.matches(_find_gpu(model, slug), model.manifest.purpose):
        if match.model != model:
            try:
                registry.verify(match.model)
            except ModelError:
                continue
            return match.model
    return None


def present_default(model: ModelVersion, slug: str) -> ModelVersion | None:
    """The model that an alias makes the default of this GPU of the given model; None where there is
    none. Raises ModelError where the given model's manifest cannot be read, RegistryError where the
    model has no record of the GPU."""
    for match in registry.matches(_find_gpu(model, slug), model.manifest.purpose):
        if match.default_of is not None and slug in match.model.slugs:
            return match.model
    return None

"""One candidate on one problem: each of its timings, what models and their members predict, what
the compiler made of it, and its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from diode_app import text
from diode_app.data import predictors
from diode_app.data.predictors import Model
from diode_app.data.problem_columns import short
from diode_app.data.tables import Column, Row, make_row
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models.estimates import Resources, resources
from diode_engine.store import Store
from diode_engine.store.query import CandidateTiming, timings_of

TIMING_COLUMNS = (
    Column("run", "run", "the run that timed it", right=True),
    Column("kind", "kind", "the kind of the run; a feedback run has Inductor's own times"),
    Column("min_us", "µs", "the shortest launch, in µs", show=text.microseconds, right=True),
    Column("median_us", "median µs", "the median launch, in µs", show=text.microseconds,
           right=True, rank=1),
    Column("spread_us", "spread µs", "the interquartile range of the launches, in µs",
           show=text.microseconds, right=True, rank=2),
    Column("repeats", "launches", "how often it was launched", right=True, rank=3),
    Column("failure", "failure", "why it has no time"),
    Column("gpu", "GPU", "what it was timed on", rank=4),
    Column("torch", "torch", "the version of torch", rank=5),
    Column("triton", "Triton", "the version of Triton", rank=6),
    Column("driver", "driver", "the version of the GPU's driver", rank=7),
)  # fmt: skip
PREDICTION_COLUMNS = (
    Column("model", "model", "a model, then each of its members"),
    Column("us", "µs", "the predicted time, in µs; a model's is the geometric mean of its members'",
           show=text.microseconds, right=True),
    Column("error", "error", "the predicted time against the measured one", show=text.change,
           right=True),
)  # fmt: skip
_KEYS = ("template", "kwargs")
_NOT_COMPILED = "not known; a collection with --direct records it"


@dataclass(frozen=True)
class CandidateView:
    """`predictions` are for one GPU. `facts` are names and values: the median time on this GPU, the
    models' predictions, the kernel, and the candidate as `collect --candidates` reads it."""

    facts: tuple[tuple[str, str], ...]
    timings: tuple[Row, ...]
    predictions: tuple[Row, ...]


def candidate_in(row: Row) -> Candidate:
    """Return the candidate of a row of candidates."""
    return Candidate.from_dict({name: row.record[name] for name in _KEYS if name in row.record})


def candidate_view(
    store: Store | None, problem: Problem, candidate: Candidate, hardware: Hardware, *,
    asks: bool = True,
) -> CandidateView:  # fmt: skip
    """Return what is known of the candidate; without a store it has no timings, and with `asks`
    False no model is asked. Raises StoreError where the store cannot be read."""
    found = [] if store is None else timings_of(store, problem.key, candidate.key)
    here = [each.timing for each in found if each.environment.hardware == hardware]
    times = [t.median_us if t.min_us is None else t.min_us for t in here if t.failure is None]
    measured = median(us for us in times if us is not None) if times else None
    models = predictors.models_for(hardware) if asks else ()
    predictions = tuple(_predictions(models, problem, candidate, hardware, measured))
    timed = f"{text.microseconds(measured)} µs on {hardware.name}"
    facts = [("measured", "not timed" if measured is None else timed)]
    if predicted := _describe_predictions(predictions):
        facts.append(("predicted", predicted))
    facts += _kernel(problem, candidate, hardware, found)
    facts.append(("config", json.dumps(candidate.to_dict())))
    timings = tuple(_timing(i, each) for i, each in enumerate(found))
    return CandidateView(tuple(facts), timings, predictions)


def _timing(place: int, each: CandidateTiming) -> Row:
    e, t = each.environment, each.timing
    record = {
        "run": each.run, "kind": each.kind, "min_us": t.min_us, "median_us": t.median_us,
        "spread_us": t.spread_us, "repeats": t.repeats or None,
        "failure": None if t.failure is None else t.failure.replace("_", " "),
        "gpu": e.hardware.name, "torch": e.torch, "triton": e.triton, "driver": e.driver,
    }  # fmt: skip
    return make_row(str(place), record, TIMING_COLUMNS, {})


def _predictions(
    models: Sequence[Model],
    problem: Problem,
    candidate: Candidate,
    hardware: Hardware,
    measured: float | None,
) -> Iterator[Row]:
    for model in models:
        try:
            predictor = predictors.loaded(model)
        except ModelError as error:
            yield make_row(model.reference, {"model": f"{model.reference}: {error}"},
                           PREDICTION_COLUMNS, {})  # fmt: skip
            continue
        mean = float(predictor.predict_us(problem, (candidate,))[0])
        members = predictor.predict_members_us(problem, (candidate,))[:, 0].tolist()
        families = [str(member["family"]) for member in predictor.manifest.members]
        if len(families) != len(members):  # a student, which answers for several
            families = ["member"] * len(members)
        named = [f"  {family} {i}" for i, family in enumerate(families, 1)]
        several = zip(named, members, strict=True) if len(members) > 1 else ()
        for name, us in ((model.reference, mean), *several):
            off = None if measured is None else us / measured - 1
            record: dict[str, Any] = {"model": name, "us": us, "error": off}
            yield make_row(f"{model.reference}{name}", record, PREDICTION_COLUMNS, {})


def _describe_predictions(rows: Sequence[Row]) -> str:
    """Return what the models predict, without their members."""
    return " · ".join(
        row.cells["model"]
        + (f" {row.cells['us']} µs" if row.cells["us"] else "")
        + (f" ({row.cells['error']})" if row.cells["error"] else "")
        for row in rows
        if not row.cells["model"].startswith(" ")
    )


def _kernel(
    problem: Problem, candidate: Candidate, hardware: Hardware, timings: Sequence[CandidateTiming]
) -> list[tuple[str, str]]:
    known = [each.timing.kernel for each in timings if each.timing.kernel is not None]
    facts = [("candidate", short(candidate))]
    if candidate.is_extern:
        facts.append(("compiled", "by the library"))
    elif not known:
        facts.append(("compiled", _NOT_COMPILED))
    else:
        k = known[-1]
        spills = f"{k.spill_stores:,} B stored, {k.spill_loads:,} B loaded a thread"
        facts += [
            ("compiled", f"{k.registers} registers a thread, {text.size(k.shared_bytes)} shared"),
            ("spilled", spills if k.spill_stores or k.spill_loads else "nothing"),
            ("code", f"{k.instructions:,} instructions"),
        ]
    needs = resources(problem, candidate, hardware)
    if needs is not None:
        shared = text.size(round(needs.shared_bytes))
        facts += [
            ("estimated", f"{describe_tiles(needs)}, {shared} shared, "
             f"{needs.blocks:.0f} blocks a multiprocessor"),
            ("bound by", ", ".join(f"{name} {text.microseconds(us)} µs"
                                   for name, us in needs.limits_us[:2])),
        ]  # fmt: skip
    return facts


def describe_tiles(needs: Resources) -> str:
    """Return how many tiles a kernel has, and in how many waves they are computed."""
    return f"{text.quantity(round(needs.tiles), 'tiles')} in {needs.waves:,.2f} waves"

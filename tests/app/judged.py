"""Validations over real timings, without a process of their own."""

from __future__ import annotations

from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import ModelVersion
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store
from diode_engine.validation import Report, evaluate


def judge(store: Store, model: ModelVersion) -> tuple[int, Report]:
    """The run that keeps the report on this model, on the problems that training holds out, and
    the report."""
    seen, table = split(store.read())
    report = evaluate(
        table, Predictor.load(model.folder), name=model.reference, unseen=True, seen=seen
    )
    run = store.start_run("validate", {"model": model.reference}, process=current_process())
    store.set_result(run, report.to_dict())
    store.update_run(
        run,
        progress={"judged": report.model, "problems": report.problems,
                  "efficiency": report.efficiency},
    )  # fmt: skip
    store.finish_run(run, RunState.DONE)
    return run, report

"""A tuning: one run of the store that looks at a GPU, times the problems that teach the most,
trains, and promotes the model if it is better. Its collections and its training are runs of their
own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from diode_engine import registry
from diode_engine.collect import gpus as gpu_names
from diode_engine.collect.executor import Executor
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import CollectionError, RegistryError, TrainingError
from diode_engine.models.artifact import load_artifact
from diode_engine.registry import Match, ModelVersion
from diode_engine.runs import Job
from diode_engine.store import RunState, Store
from diode_engine.training.correction import has_xgboost
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.train import Trained
from diode_engine.training.trainable_rows import TrainingSplit
from diode_engine.tuning import page, quick
from diode_engine.tuning.page import chooser_rows
from diode_engine.tuning.rounds import NONE, Rounds, TuneRequest
from diode_engine.tuning.stages import Counts, Note, Stages
from diode_engine.tuning.undisturbed import count_disturbed, in_use
from diode_engine.validation.gate import GateVerdict, promote

JUDGED = 0.05  # the share of the minutes for the judging and the learning curve


def state_of(gpu: int) -> GpuState | None:
    """The state of a GPU; None where it is not known. Imports torch."""
    watch = GpuWatch.open()
    watch.add(gpu, gpu_names.name_of(gpu))
    return watch.state(gpu)


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning; `document` is the run's result, with its page."""

    run: int
    model: ModelVersion
    promoted: bool
    document: Mapping[str, Any]


def tune(
    store: Store,
    request: TuneRequest,
    hardware: Hardware,
    torch: str,
    *,
    executor: Callable[[], Executor],
    capture: Callable[[], Sequence[Problem]] | None = None,
    look: Callable[[int], GpuState | None] = state_of,
    note: Note = lambda sentence: None,
    report: Callable[[Mapping[str, Any]], None] = lambda progress: None,
    clock: Callable[[], float] = time.monotonic,
    fits: FitExecutor = IN_THIS_PROCESS,
) -> Tuned:
    """Tunes a model to this kind of GPU, for this version of torch, as a run of kind tune. Where
    the same tuning was interrupted before, the time that it spent on timing counts, and the call
    continues there.

    `executor` makes the executor that times kernels, anew for each round. `capture` gives more of a
    program's own products. `look` gives the state of a GPU before anything of this process runs on
    it. `report` is called with the run's progress. `fits` makes the fits that can be made side by
    side.

    Raises CollectionError where kernels cannot be timed on this kind of GPU, or the GPU is lost;
    TrainingError where there are too few timings; ModelError and RegistryError where there is no
    such model to start from. What was timed stays in the store.
    """
    if not hardware.is_supported:
        raise CollectionError(
            f"{hardware.name} cannot be tuned for: kernels are timed on NVIDIA GPUs only."
        )
    before = registry.best_for(hardware)
    base = _base(request, hardware, before)
    earlier = _seconds_timed(store, request.spec())
    with Job(
        store, "tune", request.spec(),
        when_cancelled="stopped by the user; run the command again to resume",
    ) as job:  # fmt: skip
        stages = Stages(job, request.minutes, Counts(earlier), note, report, clock)
        artifact = None if base is None else load_artifact(base.folder)
        rounds = Rounds(
            store, job.id, request, hardware, torch, base, artifact, executor, stages, fits
        )
        job.ending = lambda: stages.tell(force=True)
        tuned = _tune(rounds, before, capture, look)
        store.set_result(job.id, tuned.document)
        taken = "is taken from now on" if tuned.promoted else "was refused by the gate"
        job.message = f"registered as {tuned.model.reference}, which {taken}"
        return tuned


def _base(request: TuneRequest, hardware: Hardware, before: Match | None) -> ModelVersion | None:
    if request.base == NONE:
        return None
    if request.base is not None:
        return registry.resolve_for(request.base, hardware.name)
    return None if before is None else before.model


def _seconds_timed(store: Store, spec: Mapping[str, Any]) -> float:
    """How many seconds earlier runs of this tuning have spent on timing, since the last run that
    was finished."""
    seconds = 0.0
    for run in store.runs():
        if run.kind == "tune" and dict(run.spec) == dict(spec):
            told = (run.progress or {}).get("timing_seconds", 0.0)
            seconds = 0.0 if run.state is RunState.DONE else max(seconds, float(told))
    return seconds


def _tune(
    rounds: Rounds,
    before: Match | None,
    capture: Callable[[], Sequence[Problem]] | None,
    look: Callable[[int], GpuState | None],
) -> Tuned:
    stages, hardware, base = rounds.stages, rounds.hardware, rounds.artifact
    own = list(rounds.request.own)
    if capture is not None:
        with stages.stage("capturing the products that the program compiles"):
            own += capture()
    disturbances = _find_disturbances(rounds.request.gpus, look)
    for sentence in disturbances:
        stages.note(sentence)
    if base is None and not has_xgboost():
        stages.note("XGBoost is not installed: networks are trained instead of trees.")
    rounds.run(own)
    with stages.stage("training"):
        trained = _train(rounds, everything=bool(own))
    table = rounds.undisturbed(rounds.store.read(hardware=hardware.name))
    split = TrainingSplit.make(table, hardware.name, rounds.held_out_by)
    with stages.stage("judging it"):
        others = {} if rounds.base is None else {rounds.base: "what it started from"}
        if before is not None:
            others.setdefault(before.model, "taken before")
        rows = chooser_rows(trained.model, split, others, seen=bool(own))
        verdict, why_not = _promote(rounds, trained.model, table)
    with stages.stage("learning from parts of the timings"):
        curve = quick.learning_curve(split, base, check=stages.check, fits=rounds.fits)
    document = _document(
        rounds, trained, verdict, why_not,
        own=len(own), disturbances=disturbances, choosers=rows, curve=curve,
    )  # fmt: skip
    return Tuned(rounds.id, trained.model, document["promoted"], document)


def _document(
    rounds: Rounds, trained: Trained, verdict: GateVerdict | None, why_not: str | None,
    **found: object,
) -> dict[str, Any]:  # fmt: skip
    """Return the run's result, with its page."""
    hardware, base, stages = rounds.hardware, rounds.base, rounds.stages
    document = {
        **asdict(stages.counts),
        "hardware": hardware.name,
        "torch": rounds.torch,
        "minutes": rounds.request.minutes,
        "seconds": round(stages.seconds, 1),
        "timing_seconds": round(stages.counts.seconds, 1),
        "from": None if base is None else str(base.reference),
        "from_hardware": None if base is None else base.manifest.record_for(hardware).hardware.name,
        "left_out": count_disturbed(rounds.store, hardware.name),
        "model": trained.to_dict(),
        "promoted": verdict is not None and verdict.passed,
        "verdict": None if verdict is None else verdict.to_dict(),
        "why_not": why_not if verdict is None else " ".join(verdict.reasons) or None,
        "stages": list(stages.done),
        **found,
    }
    return {**document, "page": page.render_page(document)}


def _find_disturbances(gpus: Sequence[int], look: Callable[[int], GpuState | None]) -> list[str]:
    """Return a sentence for each sign that a GPU does other work, or is throttled."""
    found = []
    for gpu in gpus:
        state = look(gpu)
        if (sign := in_use(state)) is not None:
            found.append(
                f"GPU {gpu} was shared with others when the timing began: {sign}. Timings whose "
                "launches differ much are left out; what remains may still be too slow."
            )
        if state is not None and state.throttled:
            found.append(
                f"GPU {gpu} was throttled when the timing began ({', '.join(state.held_back)})."
            )
    return found


def _train(rounds: Rounds, *, everything: bool) -> Trained:
    base, hardware = rounds.artifact, rounds.hardware.name
    request = TrainingRequest(
        family=quick.family(base),
        base=base,
        hardware=hardware,
        name=rounds.request.name or ("gemm" if base is None else None),
        seed=rounds.request.seed,
        everything=everything,
        settings=_settings(rounds, everything=everything),
    )
    try:
        return train_from_store(
            rounds.store, request, report=lambda *_: rounds.stages.check(),
            keep=rounds.undisturbed, fits=rounds.fits,
        )  # fmt: skip
    except TrainingError as error:
        left_out = count_disturbed(rounds.store, hardware)
        raise TrainingError(
            f"{error} What was timed is kept: run the command again with more minutes, which adds "
            "to it."
            + (f" {left_out:,} timings were left out: they were disturbed." if left_out else "")
        ) from error


def _settings(rounds: Rounds, *, everything: bool) -> TrainingSettings:
    """Return the settings of a training that ends in time for the judging. With `everything`, the
    training fits two models."""
    minutes, stages, known = rounds.request.minutes, rounds.stages, rounds.quick
    seconds = stages.seconds_left - JUDGED * 60 * minutes
    to_label = None if known is None else quick.seconds_to_label(known, rounds.torch, stages.clock)
    each = seconds / (2 if everything else 1)
    return quick.settings(minutes, rounds.artifact, each, to_label)


def _promote(
    rounds: Rounds, model: ModelVersion, table: TimingTable
) -> tuple[GateVerdict | None, str | None]:
    """Return the gate's verdict, or None and the reason why there is none."""
    try:
        return promote(model, table, rounds.hardware.slug, check=rounds.stages.check), None
    except RegistryError as error:  # somebody has promoted another one meanwhile
        return None, str(error)

"""The result of a tuning as a page of Markdown, and what the tuned model and others reach on the
held-out problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diode_engine.errors import TrainingError
from diode_engine.models.predictor import Predictor
from diode_engine.plain_text import format_duration, format_number
from diode_engine.registry import ModelVersion
from diode_engine.training.trainable_rows import TrainingSplit
from diode_engine.validation import evaluate
from diode_engine.validation.report import ChooserRow

_FIGURES = ("efficiency", "p10", "worst", "first_5")
_SMALL = 0.002  # a gain that another seed could bring, too


def render_page(found: Mapping[str, Any]) -> str:
    """The page of a tuning's result (see tuning.run)."""
    model = found["model"]
    source = (
        "from no model" if found["from"] is None
        else f"from {found['from']} of {found['from_hardware']}"
    )  # fmt: skip
    taken = (
        "It passed the gate and is taken from now on." if found["promoted"]
        else f"It is not taken: {found['why_not']}"
    )  # fmt: skip
    parts = [
        f"# {model['model']} for {found['hardware']}",
        f"Tuned {source} in {format_duration(found['seconds'])} ({found['minutes']:g} minutes were "
        f"asked for; torch {found['torch']}). {taken}",
        f"It has learned from {model['timings']:,} timings of {model['problems']:,} problems; "
        f"{model['held_out_problems']:,} others were held out from the start, and what follows "
        "is on these. Efficiency is the time of the best kernel that was timed over that of the "
        "kernel that was chosen.",
        _table(
            ("chooser", "geomean", "10th percentile", "worst", "best of its first 5"),
            [
                (row["chooser"], *(format_number(row[name], ".3f") for name in _FIGURES))
                for row in found["choosers"]
            ],
        ),
        *_own(found),
        "## What more minutes would bring",
        *_curve(found["curve"]),
        "## What was done",
        _table(
            ("stage", "seconds"),
            [(stage["stage"], f"{stage['seconds']:.0f}") for stage in found["stages"]],
        ),
        *_disturbances(found),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _own(found: Mapping[str, Any]) -> list[str]:
    if not found["own"]:
        return []
    return [
        f"The program's own {found['own']} products were timed first. The model that is registered "
        "has learned from all timings, the held-out ones too. Its row above is of a model that was "
        "made in the same way without them."
    ]


def _curve(points: Sequence[Mapping[str, float]]) -> list[str]:
    if len(points) < 2:
        return ["The problems are too few to tell what more would bring: give it more minutes."]
    rows = [
        (f"{point['share']:.0%}", f"{point['problems']:,.0f}", f"{point['timings']:,.0f}",
         format_number(point["efficiency"], ".3f"))
        for point in points
    ]  # fmt: skip
    gain = points[-1]["efficiency"] - points[-2]["efficiency"]
    said = (
        f"The last doubling brought {gain:+.3f}, so twice the minutes will bring at most about "
        "as much."
        if gain > _SMALL
        else f"The last doubling brought {gain:+.3f}, no more than chance would: more minutes will "
        "hardly help."
    )
    return [
        "How well quick models choose on the held-out problems when they learn from a share of the "
        "others (the registered model is not among them):",
        _table(("share", "problems", "timings", "geomean"), rows),
        said,
    ]


def _disturbances(found: Mapping[str, Any]) -> list[str]:
    said = list(found["disturbances"])
    if found["throttled"]:
        said.append(
            f"{found['throttled']:,} timings were taken while the GPU was throttled; they are kept "
            "in a run of their own, and were left out."
        )
    if found["left_out"]:
        said.append(
            f"{found['left_out']:,} timings of this GPU in the store were left out: it was "
            "throttled, or their launches differed by more than on a GPU without other work."
        )
    if found["out_of_memory"]:
        said.append(f"{found['out_of_memory']:,} kernels had too little memory and were not timed.")
    if found["workers_lost"]:
        said.append(f"{found['workers_lost']:,} worker processes were lost and replaced.")
    return ["## What disturbed it", "\n".join(f"- {sentence}" for sentence in said)] if said else []


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def chooser_rows(
    model: ModelVersion,
    split: TrainingSplit,
    others: Mapping[ModelVersion, str],
    *,
    seen: bool,
) -> list[dict[str, Any]]:
    """What each chooser reaches on the held-out problems: the model, those of the `others` (each
    with what it is to the tuning) that know any of the problems, and those without a model. With
    `seen` the model has learned from these problems, so its figures come from its manifest."""
    gpu = split.hardware
    own, *without = evaluate(split.judged, Predictor.load(model.folder, gpu)).choosers
    rows = [_told(model) if seen else _figures(model.reference, own)]
    for version, role in others.items():
        try:
            row = evaluate(split.judged, Predictor.load(version.folder, gpu)).choosers[0]
        except TrainingError:  # it knows none of these products
            continue
        made_for = version.manifest.record_for(gpu).hardware.name
        of = "" if made_for == gpu.name else f" of {made_for}"
        rows.append(_figures(f"{version.reference}{of}, {role}", row))
    return [*rows, *(_figures(row.chooser, row) for row in without)]


def _told(model: ModelVersion) -> dict[str, Any]:
    metrics = model.manifest.metrics
    return {
        "chooser": f"{model.reference}, made without these problems",
        "efficiency": metrics["efficiency"],
        "p10": metrics["efficiency_p10"],
        "worst": metrics["efficiency_worst"],
        "first_5": metrics["efficiency_top"].get("5"),
    }


def _figures(name: str, row: ChooserRow) -> dict[str, Any]:
    top = row.top
    return {
        "chooser": name,
        "efficiency": top[1].geomean,
        "p10": top[1].p10,
        "worst": top[1].worst,
        "first_5": top[5].geomean if 5 in top else None,
    }

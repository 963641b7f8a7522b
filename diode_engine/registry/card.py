"""What a model says about itself: its card in Markdown, its lineage, and the figures by which it is
compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diode_engine.core.checks import encode_fields
from diode_engine.models.manifest import Manifest
from diode_engine.registry.facts import ModelFacts
from diode_engine.registry.sources import ModelVersion

_METRICS = {
    "problems": "problems judged on",
    "efficiency": "efficiency, geometric mean",
    "efficiency_p10": "efficiency, 10th percentile",
    "efficiency_worst": "efficiency, worst",
    "log_rmse": "error of log time (RMSE)",
    "calibration_error": "error of its confidence (expected calibration error)",
    "calibration_error_by_chance": "of which chance alone would make about",
}

# The metrics that are shown for each GPU of a model of several.
GPU_FIGURES = ("problems", "efficiency", "efficiency_p10", "efficiency_worst")


def lineage(model: ModelVersion, known: ModelFacts) -> dict[str, Any]:
    """Where the model came from, as JSON has it: the model, the runs and datasets that its
    timings are from, and the hardware and software they were taken with. Raises ModelError where
    its manifest cannot be read."""
    m = model.manifest
    data = encode_fields(m.data)
    return {
        "model": {
            "reference": model.reference,
            "identity": m.identity,
            "created": m.created,
            "diode": m.diode,
            "origin": known.origin,
        },
        "runs": data.pop("runs"),
        "data": {**data, "base": m.data.base or None},
        "environment": {
            "hardware": m.hardware.to_dict(),
            "torch": list(m.torch),
            "triton": list(m.triton),
        },
    }


def side_by_side(model: ModelVersion) -> dict[str, Any]:
    """What a model was made of, and its own metrics, by name: numbers and texts. Metrics of models
    that were judged on different `problems` cannot be compared. Raises ModelError where its
    manifest cannot be read."""
    m = model.manifest
    flat: dict[str, Any] = {}
    for name, value in m.metrics.items():
        if isinstance(value, dict):
            flat.update({f"{name} {k}": v for k, v in value.items() if not isinstance(v, dict)})
        elif not isinstance(value, list):
            flat[name] = value
    of_gpus = {
        f"{record.hardware.name}: {name.replace('_', ' ')}": record.metrics[name]
        for record in m.gpus
        for name in GPU_FIGURES
        if name in record.metrics
    }
    return {
        "hardware": ", ".join(m.gpu_names),
        "family": m.family,
        "torch": ", ".join(m.torch),
        "triton": ", ".join(m.triton),
        "trained problems": m.data.problems,
        "trained timings": m.data.timings,
        "bytes": sum(entry["bytes"] for entry in m.files),
        **of_gpus,
        **flat,
    }


def card(model: ModelVersion, known: ModelFacts) -> str:
    """The model card, as Markdown (after Mitchell et al., "Model Cards for Model Reporting", 2019):
    what the model is for, what it was made of, how good it is and what it cannot do. Raises
    ModelError where its manifest cannot be read."""
    m = model.manifest
    gpus = " and ".join(m.gpu_names)
    sections = [
        f"# {model.reference}, for {gpus}",
        f"A model of the time that kernels take ({m.purpose}), with which Diode chooses them on "
        f"{gpus}. Made on {m.created[:10] or 'an unknown day'} by Diode "
        f"{m.diode or 'of an unknown version'}; family: {m.family}.",
        *((known.note,) if known.note else ()),
        "## What it was made of\n\n" + _data(m),
        "## How good it is\n\n" + _metrics(m),
        "## Limits\n\n" + _limits(m),
        "## Files\n\n" + _files(m),
    ]
    return "\n\n".join(sections) + "\n"


def _data(m: Manifest) -> str:
    return _list(
        f"{m.data.timings:,} timings of {m.data.problems:,} problems",
        *(
            f"hardware: {h.name} ({h.backend} {h.arch}, {h.multiprocessors} multiprocessors)"
            for h in (record.hardware for record in m.records)
        ),
        f"torch {_words(m.torch)}, Triton {_words(m.triton)}",
        f"datasets, by content: {_code(m.data.datasets)}",
        f"files: {_code(m.data.files)}",
        f"runs: {_code(m.data.runs)}",
        *((f"tuned from the model with the identity `{m.data.base}`",) if m.data.base else ()),
    )


def _metrics(m: Manifest) -> str:
    of_gpus = _gpu_table(m)
    if not m.metrics:
        return of_gpus or "It has not been validated."
    rows = [(label, m.metrics[name]) for name, label in _METRICS.items() if name in m.metrics]
    rows += [
        (f"{name.replace('_', ' ')}: {key}", value)
        for name, group in m.metrics.items()
        if isinstance(group, Mapping)
        for key, value in group.items()
    ]
    table = ["| metric | value |", "|---|---:|"]
    table += [f"| {label} | {_number(value)} |" for label, value in rows if _is_number(value)]
    return "\n\n".join(part for part in (of_gpus, "\n".join(table), m.notes) if part)


def _gpu_table(m: Manifest) -> str:
    """A line for each GPU of a model of several; empty for a model of one."""
    if not m.gpus:
        return ""
    rows = ["| GPU | timings | problems | judged on | efficiency | 10th percentile | worst |",
            "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for record in m.gpus:
        values = [
            record.timings,
            record.problems,
            *(record.metrics.get(key) for key in GPU_FIGURES),
        ]
        cells = " | ".join("" if value is None else _number(value) for value in values)
        rows.append(f"| {record.hardware.name} | {cells} |")
    return "\n".join(rows)


def _limits(m: Manifest) -> str:
    seen = {
        True: "It was trained on the held-out problems, so its figures on them say nothing.",
        False: "It was not trained on the held-out problems.",
        None: "It is not known whether it was trained on the held-out problems.",
    }[m.everything]
    return _list(
        f"It predicts times for {_words(m.coverage.types)} and for these templates, by operator: "
        f"{_code(m.coverage.kernels)}. It has no prediction for anything else, and the choice is "
        "made without it.",
        f"Times of other hardware than {' and '.join(m.gpu_names)}, or of another torch or "
        "Triton, are a guess.",
        "Its efficiency is measured against the best of the candidates that were timed; the best "
        "of all candidates may be faster.",
        seen,
        "It says how sure it is of a choice."
        if m.confidence is not None
        else "It does not say how sure it is of a choice.",
    )


def _files(m: Manifest) -> str:
    rows = [f"| {e['file']} | {e['bytes']:,} | `{e['sha256']}` |" for e in m.files]
    return "\n".join(
        [f"Identity: `{m.identity}`\n", "| file | bytes | SHA-256 |", "|---|---:|---|", *rows]
    )


def _list(*lines: str) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) or "unknown"


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "unknown"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

"""The figures by which models are compared."""

from __future__ import annotations

from typing import Any

from diode_engine.registry.card import GPU_FIGURES
from diode_engine.registry.sources import ModelVersion


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

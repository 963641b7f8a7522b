"""Models in the user's registry whose predictions are plain: what the features estimate, times
what each stage of a kernel's pipeline costs by the model's rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diode_engine import registry
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.models.artifact import save_artifact
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, GpuRecord, Manifest
from diode_engine.models.neighbours import places
from diode_engine.registry import ModelVersion
from tests.samples import weighing

KERNELS = tuple(
    sorted(f"mm {template}" for template in ("aten::mm", "triton::mm", "triton::mm_persistent_tma"))
)


def register_model(
    folder: Path,
    name: str,
    *,
    stage: float = 0.0,
    sure: bool = False,
    default: bool = False,
    hardware: Hardware = H200,
    gpus: tuple[GpuRecord, ...] = (),
) -> ModelVersion:
    """It knows mm in bfloat16; a stage makes the time exp(`stage`) times as long. Where `sure`,
    its first choice is within 5 % of the best half of the time, its first three nine of ten
    times."""
    manifest = Manifest(
        name=name, family="network", hardware=hardware, gpus=gpus,
        coverage=Coverage(KERNELS, ("bfloat16",), ("mm bfloat16",)),
        data=Data(("d" * 32,), (), 9, 99),
    )  # fmt: skip
    confidence = None
    if sure:
        reached = np.array([0.5, 0.8, *[0.91] * (MAX_K - 2)])
        confidence = Confidence(
            np.zeros((MAX_K, len(INPUTS)), np.float32),
            np.log(reached / (1 - reached)).astype(np.float32),
            places([Problem.make("mm", 64, 64, 64, "bfloat16")]),
        )
    network = weighing({"stages": stage}, residual=True)
    save_artifact(folder / name, manifest, (network,), confidence)
    return registry.register(folder / name, default=default)

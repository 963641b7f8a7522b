"""The hardware of this machine, found by another process: only torch knows it, and importing torch
takes seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diode_app.data.background import run_python

if TYPE_CHECKING:
    from diode_engine.core.hardware import Environment, Hardware

_PROGRAM = """
import importlib.metadata, json, os, sys
os.nice(10)  # torch's import takes a core for seconds: the dashboard's keys come first
from diode_engine.core.hardware import detect
count = 0
import torch
if torch.cuda.is_available():
    count = torch.cuda.device_count()
versions = {"torch": torch.__version__}
try:
    versions["triton"] = importlib.metadata.version("triton")
except importlib.metadata.PackageNotFoundError:
    pass
json.dump({"hardware": detect().to_dict(), "count": count, "versions": versions}, sys.stdout)
"""


@dataclass(frozen=True)
class LocalHardware:
    """The device of this machine and how many of its kind there are, with the versions of torch and
    Triton."""

    hardware: Hardware
    count: int
    versions: Mapping[str, str]

    def __str__(self) -> str:
        hw = self.hardware
        if not self.count:
            return f"No GPU: {hw.name}."
        return (
            f"{self.count} × {hw.name} ({hw.backend} {hw.arch}, {hw.multiprocessors} "
            f"multiprocessors, {hw.clock_mhz} MHz, {hw.memory_gb_s} GB/s)"
        )


def describe_environment(environment: Environment) -> str:
    """Return the GPU and its software; a version that is not known is left out."""
    e = environment
    versions = (("torch", e.torch), ("Triton", e.triton), ("driver", e.driver))
    known = (f"{name} {version}" for name, version in versions if version)
    return " · ".join((e.hardware.name, *known))


async def find_hardware() -> LocalHardware:
    """Take seconds; where the caller is cancelled, the process that looks is killed.
    Raises CommandError, with the reason."""
    from diode_engine.core.hardware import Hardware

    found = json.loads(await run_python("-c", _PROGRAM, outlives=False))
    return LocalHardware(Hardware.from_dict(found["hardware"]), found["count"], found["versions"])

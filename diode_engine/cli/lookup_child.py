"""The other process of `diode-engine export-lookup-table`, which pretends to have the GPU.

    python -m diode_engine.cli.lookup_child

is asked {"model": folder, "hardware": {...}, "problems": [...], "top": 1} and answers with one line
for each problem: its entries of the table, by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.demo.child import answers
from diode_engine.models.predictor import Predictor


def entries(question: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The entries of each problem. Until it ends, this process pretends that the GPU is in this
    machine."""
    from diode_engine.inductor import without_gpu  # brings torch

    without_gpu.pretend(Hardware.from_dict(question["hardware"]))
    from diode_engine.inductor.choosing.lookup_table import lookup_entries

    hardware = Hardware.from_dict(question["hardware"])
    predictor = Predictor.load(Path(question["model"]), hardware)
    for given in question["problems"]:
        yield lookup_entries(Problem.from_dict(given), predictor, top=question["top"])


if __name__ == "__main__":
    answers(entries)

"""The gate, over the models and the timings that Diode ships."""

from __future__ import annotations

import click
import pytest

from diode_engine import paths, registry
from diode_engine.cli.models.promoting import format_verdict
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.problems.splits import split
from diode_engine.store import read_dataset
from diode_engine.validation import gate

# Of each GPU, files with all kinds of problems that are read in a second each.
FILES = {
    "nvidia-h100": ("gemm-direct-2026-11-22",),
    "nvidia-h200": (
        "gemm-direct-2026-11-22", "harvest-2026-11-22", "harvest-2-2026-11-22",
        "eight-bit-2026-11-22", "many-loads-2026-11-23", "unsure-2026-11-24",
    ),
}  # fmt: skip
Sample = tuple[Hardware, TimingTable]


@pytest.fixture(scope="module")
def samples():
    """By the folder: the GPU, and the timings of its held-out problems."""
    return {folder: _sample(folder, files) for folder, files in FILES.items()}


def _sample(folder: str, names: tuple[str, ...]) -> Sample:
    of = paths.shipped_dir() / "datasets" / folder
    table = TimingTable.joined([read_dataset(of / f"{name}.packed.zst") for name in names])
    held_out = split(table)[1]
    return held_out.environments[0].hardware, held_out


@pytest.fixture
def judge(samples, capsys):
    """Judges the default of a GPU, and shows the verdict in the log of the tests."""

    def _judge(folder: str, against: registry.ModelVersion | None) -> gate.GateVerdict:
        hardware, table = samples[folder]
        match = registry.best_for(hardware)
        assert match.likeness == 1
        verdict = gate.judge(match.model, table, against, hardware.slug)
        with capsys.disabled():
            click.echo(f"\n{verdict.model} on {hardware.name}, against {verdict.against}:")
            click.echo(format_verdict(verdict))
        return verdict

    return _judge


@pytest.mark.parametrize("folder", FILES)
def test_a_default_is_better_than_the_library(folder, judge):
    verdict = judge(folder, None)
    assert verdict.against == "ATen"
    assert verdict.passed, verdict.reasons


@pytest.mark.parametrize("folder", FILES)
def test_a_default_is_no_worse_than_the_other_gpus_model(folder, samples, judge):
    """Else a GPU had better borrow it. Where both take one model, it is compared with what they
    would take without it."""
    (other,) = (hardware for name, (hardware, _) in samples.items() if name != folder)
    hardware, _ = samples[folder]
    match, own = registry.best_for(other), registry.best_for(hardware)
    against = match.model
    if against == own.model:
        otherwise = gate.find_taken_otherwise(own.model, hardware.slug)
        assert otherwise is not None
        against = otherwise
    verdict = judge(folder, against)
    assert verdict.against == against.reference
    assert verdict.passed, verdict.reasons

"""benchmarks/registers.py on timings that tell what the compiler made of their kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import KernelFacts, Timing
from diode_engine.store import write_dataset

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def kernel(m: int, n: int, k: int, warps: int) -> Candidate:
    return Candidate.make(
        "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8, num_stages=2, num_warps=warps
    )


def test_what_is_recorded_is_compared_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import registers

    problem = Problem.make("mm", 4096, 512, 13, "float32")
    environment = Environment(H200, "", "", "")
    table = TimingTable.from_records(
        (problem, candidate, environment, Timing(min_us=us, kernel=facts))
        for candidate, us, facts in (
            (kernel(128, 128, 16, 4), 1e5, KernelFacts(255, 4096, 4096, 16384, 9000)),
            (kernel(32, 32, 16, 4), 20.0, KernelFacts(64, 0, 0, 4096, 900)),
            (kernel(64, 32, 16, 4), 20.0, KernelFacts(96, 0, 0, 4096, 1200)),
            (kernel(64, 64, 16, 4), 20.0, None),
        )
    )
    path = tmp_path / "a.msgpack"
    write_dataset(table, path)
    monkeypatch.setattr(sys, "argv", ["registers.py", "--dataset", str(path)])
    monkeypatch.setattr(registers, "CompilerPool", None)
    registers.main()
    shown = capsys.readouterr().out
    assert "3 kernels, 1 at the limit of 255" in shown
    assert "spilled: 1 kernels" in shown
    assert "1 of the 1 are named by the rule" in shown
    assert "that spill: median" in shown

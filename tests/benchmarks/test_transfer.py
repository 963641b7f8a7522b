"""The benchmark of transfer, on few problems of the shipped H200 and H100 timings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diode_engine.core.hardware import H200


def test_shares_are_drawn_and_each_way_is_judged_on_the_same_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transfer

    out = tmp_path / "t.json"
    transfer.main(
        ["--part", "48", "--rounds", "15", "--members", "1", "--shares", "0.001", "0.15", "1",
         "--output", str(out)]
    )  # fmt: skip
    document = json.loads(out.read_text())
    assert (document["source"], document["target"]) == (H200.name, "NVIDIA H100 80GB HBM3")
    figures = {(r["drawn"], r["use"]): r["geomean"] for r in document["rows"]}
    assert all(0.3 < geomean <= 1 for geomean in figures.values())
    assert ("actively", "corrected") in figures
    assert ("all", "alone") in figures
    assert figures["at random", "corrected"] > figures["at random", "alone"]
    assert "too few" in capsys.readouterr().out  # of one in a thousand

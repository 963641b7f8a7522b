"""The benchmark of transfer, on few problems and a simulated device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "datasets" / "nvidia-h200" / "gemm-2026-11-21.msgpack.zst"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "transfer", raising=False)


def test_shares_are_drawn_and_each_way_is_judged_on_the_same_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transfer

    out = tmp_path / "t.json"
    transfer.main(
        ["--source", str(DATASET), "--simulated", "--part", "6", "--rounds", "25", "--shares",
         "0.001", "0.15", "1", "--output", str(out)]
    )  # fmt: skip
    document = json.loads(out.read_text())
    assert document["target"] == "Simulated GPU"
    figures = {(r["drawn"], r["use"]): r["geomean"] for r in document["rows"]}
    assert all(0.3 < geomean <= 1 for geomean in figures.values())
    assert ("actively", "corrected") in figures
    assert ("all", "alone") in figures
    assert figures["at random", "corrected"] > figures["at random", "alone"]
    assert "too few" in capsys.readouterr().out  # of one in a thousand


def test_a_simulated_device_takes_longer_by_what_its_limits_are_less() -> None:
    import transfer

    table = transfer.read([DATASET], 12)
    there = transfer.simulated(table)
    ok = table.failure == 0
    ratio = there.time_us[ok] / table.time_us[ok]
    assert 0.999 < ratio.min() <= ratio.max() < 4
    assert ratio.mean() > 1.2
    assert transfer.hardware_of(there).name == "Simulated GPU"

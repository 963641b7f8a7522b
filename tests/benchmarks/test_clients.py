"""The programs of libraries: what their rows say, and that a process without Diode has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def row(way: str, cold: float, step: float, **more: Any) -> dict[str, Any]:
    base = {"program": "p", "way": way, "cold_s": cold, "step_us": step, "first_bytes": 10}
    return base | {"step_bytes": 5} | more


ROWS = [row("plain", 10, 100), row("again", 12, 110), row("diode", 11, 99, first_bytes=12)]


def test_ratios_are_to_the_slower_step_and_the_mean_start_of_two_plain_compiles():
    import clients

    of = clients.ratios([*ROWS, row("search", 44, 100)])["p"]
    assert of["cold_plain"] == 1.0
    assert of["step_plain"] == 0.9
    assert (of["cold_search"], of["step_search"]) == (0.25, 0.99)
    assert of["memory"] == 1.2
    assert not of["search_over"]


def test_a_search_that_was_ended_bounds_the_cold_start():
    import clients

    ended = {"program": "p", "way": "search", "error": "It took over 130 s."}
    rows = [*ROWS[:2], {**ROWS[2], "process_s": 31}, ended]  # 20 s before the first step
    of = clients.ratios(rows)["p"]
    assert (of["cold_search"], of["search_over"], of["step_search"]) == (0.1, True, None)
    assert "<0.100" in clients.table(rows)


def test_a_program_without_all_ways_has_no_ratios():
    import clients

    failed = {"program": "p", "way": "diode", "error": "The process ended with 1"}
    assert clients.ratios([*ROWS[:2], failed]) == {}


@pytest.mark.parametrize(("way", "loaded"), [("plain", False), ("diode", True)])
def test_only_the_environment_variable_loads_diode(way, loaded, tmp_path):
    info = tmp_path / "diode_engine-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diode-engine\nVersion: 9\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ndiode = diode_autoload:load\n")
    import clients

    code = (
        f"import sys; sys.path.append({str(BENCHMARKS)!r}); import client_measuring\n"
        f"print(client_measuring._stats({way!r}))"
    )
    environment = clients.command("p", way, tmp_path, tiny=True)[:5]
    ran = subprocess.run(
        [*environment, sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{BENCHMARKS.parent}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ("reason" in ran.stdout) is loaded

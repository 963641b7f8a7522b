"""The programs of libraries: a process without Diode has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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

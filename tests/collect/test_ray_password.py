"""A store's password stays with the driver: a collection on a Ray cluster leaves it nowhere.
Skipped where Ray or a PostgreSQL server is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.collect.ray_cluster import KIND
from tests.collect.test_executors import ROOT

# Looks at all command lines as long as the command runs.
PROGRAM = """
import sys, threading
from dataclasses import replace
from pathlib import Path
from diode_engine.cli import main
from diode_engine.collect import local
from tests.collect.test_executors import direct_setups, worker
folder, dead, *words = sys.argv[1:]
made = replace(direct_setups(Path(folder))(), worker=worker(dead_on_arrival=dead == "dead"))
local.Direct = lambda folder: made
ended, seen = threading.Event(), set()
def look():
    while not ended.wait(0.05):
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.add(file.read_bytes())
            except OSError:
                pass
looking = threading.Thread(target=look)
looking.start()
code = main(words)
ended.set()
looking.join()
sys.stdout.buffer.write(b"\\n".join(seen))
sys.exit(code)
"""


def test_a_password_is_in_nothing_that_a_cluster_s_run_leaves(
    tmp_path, two_machines, postgres, database, diode_home
):
    environment = {
        **{name: v for name, v in os.environ.items() if not name.startswith("PG")},
        "DIODE_STORE": database.replace("@", f":{postgres.password}@"),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    words = ["--debug", "-vv", "collect", "--ray", two_machines.address, "--accelerator", KIND,
             "--direct", "--problems", "3", "--ops", "mm"]  # fmt: skip
    said = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), worker, *words],
            env=environment, cwd=tmp_path, capture_output=True, check=False,
        )
        for worker in ("alive", "dead")
    ]  # fmt: skip
    assert [ran.returncode for ran in said] == [0, 1], said
    assert b"no GPU today" in said[1].stderr
    assert b"GpuHost" in said[0].stdout  # a process of the cluster was looked at
    rows = postgres.execute("SELECT runs::text FROM runs", database.rpartition("/")[2])
    assert len(rows) == 2
    left = [
        path.read_bytes()
        for folder in (tmp_path, diode_home, two_machines.logs)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert len(left) > 10
    for text in [*[ran.stdout + ran.stderr for ran in said], *left, str(rows).encode()]:
        assert postgres.password.encode() not in text

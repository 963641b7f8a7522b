"""What only a Ray cluster does: machines are lost, binaries go between them, GPUs are of several
kinds. Skipped where Ray is not installed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from diode_engine.cli import main
from diode_engine.collect import local, session_runner
from diode_engine.collect.cluster import executor as cluster
from diode_engine.collect.cluster.compilers import RayCompilers
from diode_engine.collect.cluster.executor import RayExecutor
from diode_engine.collect.local import Setup
from diode_engine.collect.run import BATCH
from diode_engine.core.hardware import H200
from diode_engine.errors import CollectionError
from diode_engine.runs import find
from diode_engine.store import RunState, Store
from diode_engine.training.ray_fits import RayFits
from diode_engine.tuning import run as tuning
from tests.collect.ray_cluster import KIND
from tests.collect.test_executors import (
    ALL,
    MIDDLE,
    OFFERED,
    PROBLEMS,
    ROOT,
    Watched,
    direct_setups,
    failures,
    keys,
    run,
    worker,
)
from tests.tuning.test_tune import OFFERED as TO_TUNE
from tests.tuning.test_tune import Clock, small


@pytest.fixture
def made(two_machines):
    usual = {"workers_per_gpu": 1, "kind": KIND}
    return lambda **more: RayExecutor(two_machines.address, **usual | more)


def test_what_a_lost_machine_was_at_is_asked_again(tmp_path, store, two_machines, made):
    """The machine whose worker hangs loses its power before the deadline."""
    stopped = tmp_path / "stopped"
    removed = []

    def lose():
        if not removed and stopped.exists():
            doomed = two_machines.machine_of(int(stopped.read_text()))
            two_machines.machines.remove(doomed)
            two_machines.remove(doomed)
            removed.append(doomed)

    try:
        progress = run(store, Watched(made(setup=Setup(worker({MIDDLE: f"stop {stopped}"}))), lose))
    finally:
        two_machines.machines += [two_machines.add() for _ in removed]
    assert removed
    assert keys(store) == ALL
    assert not failures(store)
    assert progress.workers_lost == 0


def test_a_process_that_hangs_is_replaced(tmp_path, store, made, monkeypatch):
    """The GPU's own process, not a worker of it."""
    monkeypatch.setattr(cluster, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "PATIENCE_SECONDS", 3.0)
    stopped = tmp_path / "stopped"
    frozen = []

    def freeze():
        if not frozen and stopped.exists():
            frozen.append(parent(int(stopped.read_text())))
            os.kill(frozen[0], signal.SIGSTOP)

    run(store, Watched(made(setup=Setup(worker({MIDDLE: f"stop {stopped}"}))), freeze))
    assert frozen
    assert keys(store) == ALL
    assert not failures(store)


def test_a_request_that_ends_every_process_is_given_up(tmp_path, store, made):
    """As a kernel would that takes the machine with it."""
    killed = tmp_path / "killed"
    fates = {OFFERED[-1]: f"kill parent {killed}"}
    progress = run(store, made(setup=Setup(worker(fates))), PROBLEMS[:1])
    assert progress.problems_done == 1
    assert len(keys(store)) == BATCH
    assert len(killed.read_text().splitlines()) == session_runner.MAX_LOSSES


def test_what_the_object_store_has_lost_is_compiled_again(
    tmp_path, store, two_machines, made, monkeypatch
):
    """A machine that has compiled loses its power, and no folder has what it compiled."""
    doomed = two_machines.add_cores(6)
    references = RayCompilers.references
    removed = []

    def lose(self, classes):
        if classes and not removed:
            removed.append(doomed)
            two_machines.remove(doomed)
            for file in (tmp_path / "binaries").rglob("*.msgpack"):
                file.unlink()
        return references(self, classes)

    monkeypatch.setattr(RayCompilers, "references", lose)
    run(store, made(setup=direct_setups(tmp_path)()))
    begun = (line.split()[1] for line in (tmp_path / "compiled").read_text().splitlines())
    assert max(Counter(begun).values()) > 1
    assert keys(store) == ALL
    assert not failures(store)


def test_gpus_of_several_kinds_have_to_be_named(tmp_path, two_machines, made):
    other = two_machines.add("H100")
    try:
        with Store.open(tmp_path / "s.db") as store:
            with pytest.raises(CollectionError, match=r"several kinds \(H100, H200\)"):
                run(store, made(setup=Setup(worker()), kind=None))
            with pytest.raises(CollectionError, match="no GPU of the kind L4"):
                run(store, made(setup=Setup(worker()), kind="L4"))
            progress = run(store, made(setup=Setup(worker()), kind="H100"), PROBLEMS[:2])
            assert len(progress.gpus) == 1
            run(store, made(setup=Setup(worker()), kind=KIND))
            assert keys(store) == ALL
    finally:
        two_machines.remove(other)


def test_progress_has_each_gpu_s_machine(store, two_machines, made):
    progress = run(store, made(setup=Setup(worker())))
    machines = [gpu.node for gpu in progress.gpus.values()]
    assert all(machines)
    assert len(set(machines)) == len(machines) <= 2  # a GPU each, and names of their own
    shown = store.runs()[-1].progress["gpus"]
    assert [gpu["node"] for gpu in shown.values()] == machines


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


# A tuning


__all__ = ["small"]  # a fixture


@pytest.fixture
def direct(tmp_path, monkeypatch):
    """What --direct starts on the cluster's machines."""
    made = replace(direct_setups(tmp_path)(), worker=worker(offered=TO_TUNE, time_us=None))
    monkeypatch.setattr(local, "direct_setup", lambda folder: made)


def test_the_command_times_and_trains_on_the_cluster(
    tmp_path, two_machines, monkeypatch, direct, capsys
):
    real, fitted = tuning.tune, []

    def by_timings(store, *asked, **more):
        return real(store, *asked, **more, clock=Clock(store))

    class Watched(RayFits):
        def fit_all(self, tasks, report, checkpoints=None):
            fitted.extend(task.family for task in tasks)
            return super().fit_all(tasks, report, checkpoints)

    monkeypatch.setattr(tuning, "tune", by_timings)
    monkeypatch.setattr("diode_engine.training.ray_fits.RayFits", Watched)
    store = tmp_path / "s.db"
    asked = ["tune", "--store", store, "--minutes", 60, "--ray", two_machines.address,
             "--accelerator", KIND, "--json"]  # fmt: skip
    assert main([str(word) for word in asked]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out[out.index("{") :])  # Ray may have told of machines that are gone
    assert document["promoted"]
    assert document["hardware"] == H200.name
    assert document["page"].startswith(f"# {document['model']['model']} for NVIDIA H200\n")
    assert "The page is in" in err
    best, *others = document["choosers"]
    aten = next(row for row in others if row["chooser"].startswith("ATen"))
    assert best["efficiency"] > aten["efficiency"] + 0.1
    assert fitted[0] == "ensemble"
    with Store.open(store) as opened:
        runs = find(opened)
        assert {s.run.kind for s in runs} == {"collect", "train", "tune"}
        assert all(s.state is RunState.DONE for s in runs)
        spec = next(s.run.spec for s in runs if s.run.kind == "tune")
        assert (spec["ray"], spec["accelerator"]) == (two_machines.address, KIND)
        collected = [s.run for s in runs if s.run.kind == "collect"]
        assert all(run.spec["ray"] == two_machines.address for run in collected)
        assert all(g["node"] for run in collected for g in run.progress["gpus"].values())
        assert set(keys(opened).values()) == {1}


# A store's password stays with the driver: a collection leaves it nowhere


# Looks at all command lines as long as the command runs.
PROGRAM = """
import sys, threading
from dataclasses import replace
from pathlib import Path
from diode_engine.cli import main
from diode_engine.collect import local, session_runner
from tests.collect.test_executors import direct_setups, worker
folder, dead, *words = sys.argv[1:]
made = replace(direct_setups(Path(folder))(), worker=worker(dead_on_arrival=dead == "dead"))
local.direct_setup = lambda folder: made
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

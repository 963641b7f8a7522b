"""What only a Ray cluster does: machines are lost, binaries go between them, GPUs are of several
kinds. Skipped where Ray is not installed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from diode_engine.collect.cluster import compilers, gpus
from diode_engine.collect.cluster.executor import RayExecutor
from diode_engine.collect.cluster.hosts import GpuHost
from diode_engine.collect.run import BATCH
from diode_engine.errors import CollectionError
from diode_engine.store import Store
from tests.collect.ray_cluster import KIND
from tests.collect.test_executors import (
    ALL,
    MIDDLE,
    OFFERED,
    PROBLEMS,
    Watched,
    direct_setups,
    failures,
    keys,
    run,
    worker,
)


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
        progress = run(store, Watched(made(command=worker({MIDDLE: f"stop {stopped}"})), lose))
    finally:
        two_machines.machines += [two_machines.add() for _ in removed]
    assert removed
    assert keys(store) == ALL
    assert not failures(store)
    assert progress.workers_lost == 0


def test_a_process_that_hangs_is_replaced(tmp_path, store, made, monkeypatch):
    """The GPU's own process, not a worker of it."""
    monkeypatch.setattr(gpus, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(gpus, "PATIENCE_SECONDS", 3.0)
    stopped = tmp_path / "stopped"
    frozen = []

    def freeze():
        if not frozen and stopped.exists():
            frozen.append(parent(int(stopped.read_text())))
            os.kill(frozen[0], signal.SIGSTOP)

    run(store, Watched(made(command=worker({MIDDLE: f"stop {stopped}"})), freeze))
    assert frozen
    assert keys(store) == ALL
    assert not failures(store)


def test_a_process_that_answers_nonsense_is_replaced(tmp_path, store, made, monkeypatch):
    """The GPU's own process, not a worker of it: its answer is not taken."""
    confused = tmp_path / "confused"

    class Confused(GpuHost):
        def ask(self, *request):
            answer = super().ask(*request)
            try:
                confused.touch(exist_ok=False)
            except FileExistsError:
                return answer
            return b"nonsense"

    monkeypatch.setattr(gpus, "GpuHost", Confused)
    run(store, made(command=worker()))
    assert confused.exists()
    assert keys(store) == ALL
    assert not failures(store)


def test_a_request_that_ends_every_process_is_given_up(tmp_path, store, made):
    """As a kernel would that takes the machine with it."""
    killed = tmp_path / "killed"
    fates = {OFFERED[-1]: f"kill parent {killed}"}
    progress = run(store, made(command=worker(fates)), PROBLEMS[:1])
    assert progress.problems_done == 1
    assert len(keys(store)) == BATCH
    assert len(killed.read_text().splitlines()) == gpus.MAX_LOSSES


def test_what_the_object_store_has_lost_is_compiled_again(tmp_path, store, made, monkeypatch):
    import ray

    lost = []
    references = compilers.RayCompilers.references

    def forgetful(self, classes):
        found = references(self, classes)
        if classes and not lost:
            lost.append(len(classes))
            for cls in classes:  # and the folder
                (file,) = (tmp_path / "binaries").rglob(f"{cls.key}.msgpack")
                file.unlink()
            return dict.fromkeys(found, ray.put({}))
        return found

    monkeypatch.setattr(compilers.RayCompilers, "references", forgetful)
    run(store, made(direct=direct_setups(tmp_path)()))
    assert lost
    assert keys(store) == ALL
    assert not failures(store)


def test_gpus_of_several_kinds_have_to_be_named(tmp_path, two_machines, made):
    other = two_machines.add("H100")
    try:
        with Store.open(tmp_path / "s.db") as store:
            with pytest.raises(CollectionError, match=r"several kinds \(H100, H200\)"):
                run(store, made(command=worker(), kind=None))
            with pytest.raises(CollectionError, match="no GPU of the kind L4"):
                run(store, made(command=worker(), kind="L4"))
            progress = run(store, made(command=worker(), kind="H100"), PROBLEMS[:2])
            assert len(progress.gpus) == 1
            run(store, made(command=worker(), kind=KIND))
            assert keys(store) == ALL
    finally:
        two_machines.remove(other)


def test_progress_has_each_gpu_s_machine(store, two_machines, made):
    progress = run(store, made(command=worker()))
    machines = [gpu.node for gpu in progress.gpus.values()]
    assert all(machines)
    assert len(set(machines)) == len(machines) <= 2  # a GPU each, and names of their own
    shown = store.runs()[-1].progress["gpus"]
    assert [gpu["node"] for gpu in shown.values()] == machines


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])

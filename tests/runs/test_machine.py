"""What a run uses of its machine: real processes, read from /proc, and the record of it."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from diode_engine.runs import Job
from diode_engine.runs.machine import MAX_SAMPLES, MachineWatch
from diode_engine.store import RunState

pytestmark = pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="needs /proc")

BURNT = 0.5  # seconds of processor time
COUNTED = BURNT - 0.05  # of these at least: /proc rounds each process's down
BURNS = f"""
import sys, threading, time
held = b"x" * (64 << 20)
threading.Thread(target=threading.Event().wait, daemon=True).start()
while time.process_time() < {BURNT}:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


def burn():
    """A child in a session of its own that has used so much processor time, and lives; it has 64
    MiB and two threads."""
    child = subprocess.Popen(
        [sys.executable, "-c", BURNS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stdout.readline() == b"burnt\n"
    return child


def test_the_processor_time_and_memory_of_children_count():
    watch = MachineWatch()
    watch.sample()
    before = watch.to_dict()
    assert before["cpu"] is None  # there is nothing before to compare with
    with burn() as child:
        watch.sample()
        now = watch.to_dict()
        assert now["cpu_seconds"] >= COUNTED
        assert 0 < now["cpu"] <= 100
        assert 0 < now["cpu_machine"] <= 100
        assert now["memory_bytes"] - before["memory_bytes"] > 60 << 20
        assert now["processes"] == before["processes"] + 1
        assert now["threads"] >= before["threads"] + 2
        child.stdin.close()
    watch._at -= 1  # as if a second had passed
    watch.sample()
    after = watch.to_dict()
    assert after["cpu_seconds"] >= now["cpu_seconds"]  # what has ended is not forgotten
    assert after["processes"] == before["processes"]
    assert after["peak"]["processes"] == now["processes"]
    assert after["peak"]["memory_bytes"] == now["memory_bytes"] > after["memory_bytes"]
    assert after["cores"] == os.cpu_count()
    assert 0 < after["memory_machine_bytes"] < after["memory_total_bytes"]


def test_the_samples_are_few_and_evenly_over_the_run():
    seconds = iter(range(1000))
    watch = MachineWatch(clock=lambda: next(seconds))
    for _ in range(3 * MAX_SAMPLES):
        watch.sample()
    record = watch.to_dict()
    times = [sample[0] for sample in record["samples"]]
    assert MAX_SAMPLES / 2 <= len(times) <= MAX_SAMPLES
    assert len({later - earlier for earlier, later in itertools.pairwise(times)}) == 1
    assert times[-1] > 2.9 * MAX_SAMPLES
    assert len(json.dumps(record)) < 4096


def test_right_after_a_sample_there_is_no_other():
    watch = MachineWatch(clock=lambda: 7.0)
    watch.sample()
    watch.sample()
    assert len(watch.to_dict()["samples"]) == 1


def test_without_proc_nothing_is_known(tmp_path):
    watch = MachineWatch(proc=tmp_path)
    watch.sample()
    assert watch.to_dict() is None
    watch = MachineWatch(proc=tmp_path / "missing")
    watch.sample()
    assert watch.to_dict() is None


def test_a_heartbeat_samples_at_each_beat(store):
    with Job(store, "train", {}) as job:
        assert job._machine.to_dict()["processes"] >= 1
        with burn():
            job._beat()
        assert job._machine.to_dict()["cpu_seconds"] >= COUNTED


def test_a_run_s_progress_has_the_machine_without_further_writes(store, monkeypatch):
    writes = Counter()
    for name in ("update_run", "finish_run"):
        real = getattr(store, name)

        def counted(*args, name=name, real=real, **given):
            writes[name] += 1
            real(*args, **given)

        monkeypatch.setattr(store, name, counted)
    with Job(store, "train", {}) as job:
        job.tell({"step": 1})
        working = store.run(job.id).progress
        assert working["step"] == 1
        with burn():
            pass
    ended = store.run(job.id)
    assert ended.state is RunState.DONE
    assert ended.progress["step"] == 1
    assert ended.progress["machine"]["cpu_seconds"] >= COUNTED
    assert len(ended.progress["machine"]["samples"]) > len(working["machine"]["samples"])
    assert writes == {"update_run": 1, "finish_run": 1}


def test_what_others_wrote_of_a_run_is_kept_where_its_job_says_nothing(store):
    with Job(store, "train", {}) as job:
        store.update_run(job.id, progress={"step": 3})
    assert store.run(job.id).progress == {"step": 3}

"""A collection by local workers: what it times, writes and reports, and how it goes on. What every
executor promises is in `test_executors`."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.local import LocalExecutor, Setup
from diode_engine.collect.planning.adviser import advise
from diode_engine.collect.processes import children, worker_process
from diode_engine.collect.processes.gpu_worker import GpuWorker
from diode_engine.collect.run import BATCH, claim_number
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.errors import CollectionError
from diode_engine.store import Store
from tests.collect.test_executors import OFFERED, PROBLEMS, ROOT, direct_setups, run, worker
from tests.samples import tile

PROBLEMS = PROBLEMS[:3]
FAST, HOPED, SLOW = OFFERED[-1], OFFERED[-2], OFFERED[2]
HERE = Environment(H200, "", "test", "test")


def local(gpus=(0,), *, workers_per_gpu=2, watch=lambda: GpuWatch(None), setup=None, **script):
    """Workers of these GPUs, which do what the script says."""
    setup = setup or Setup(worker(**script))
    return LocalExecutor(list(gpus), workers_per_gpu=workers_per_gpu, watch=watch, setup=setup)


@pytest.fixture(autouse=True)
def _every_gpu_is_seen(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_budget_has_the_model_s_favourites(store):
    class Members:
        """Two members that agree except on one candidate, which one of them predicts to be fast."""

        def predict_members_us(self, problem, candidates):
            sure = [1.0 if c == FAST else 50.0 for c in candidates]
            hopeful = [{FAST: 1.0, HOPED: 0.1}.get(c, 50.0) for c in candidates]
            return np.array([sure, hopeful])

    run(store, local(), PROBLEMS[:1], budget=6, adviser=lambda gpu: partial(advise, Members(), gpu))
    table = store.read()
    assert len(table) == 6
    assert {*OFFERED[:2], FAST, HOPED} < {table.candidates[i] for i in table.candidate}


class Watch(GpuWatch):
    """GPUs that are throttled or not."""

    def __init__(self, *throttled):
        super().__init__(None)
        self.throttled = throttled
        self.names = {}

    def add(self, gpu, name):
        self.names[gpu] = name

    def state(self, gpu):
        reasons = ("hw_thermal_slowdown",) if gpu in self.throttled else ("sw_power_cap",)
        return GpuState(1200 + gpu, 80, 600, reasons)


def test_a_throttled_state_that_another_thread_reads_counts():
    class Slow(Watch):
        def state(self, gpu):
            time.sleep(0.2)
            return super().state(gpu)

    watch = Slow(0)
    threading.Thread(target=watch.read, args=(0,)).start()
    while not watch._read:
        os.sched_yield()
    assert watch.throttled_since(0, 0.0)


def test_what_was_timed_on_a_throttled_gpu_is_in_a_run_of_its_own(store):
    progress = run(store, local([1], watch=lambda: Watch(1)), PROBLEMS)
    plain, throttled = store.runs()
    assert throttled.spec == {"throttled_of": plain.id}
    assert throttled.state == "done"
    assert len(store.read(run=plain.id)) == 0
    assert len(store.read(run=throttled.id)) == len(OFFERED) * 3
    assert progress.gpus[1].throttled == progress.timings == len(OFFERED) * 3
    assert run(store, local(), PROBLEMS).timings == 0  # they count as timed


def test_the_run_s_progress_is_what_the_documentation_says(store):
    run(store, local(watch=Watch, fates={SLOW: "out_of_resources"}), PROBLEMS)
    (recorded,) = store.runs()
    example = re.search(
        r"## Progress of a collection.*?```json\n(.*?)```",
        (ROOT / "docs/formats.md").read_text(), re.DOTALL,
    )  # fmt: skip
    documented = json.loads(example[1])
    assert recorded.progress.keys() == documented.keys()
    assert recorded.progress["gpus"]["0"].keys() == documented["gpus"]["0"].keys()
    assert recorded.progress["failures"] == {"out_of_resources": 3}
    gpu = recorded.progress["gpus"]["0"]
    assert (gpu["clock_mhz"], gpu["failures"], gpu["name"]) == (1200, 3, "NVIDIA H200")
    assert gpu["samples"][0][1:4] == [1200, 80, 600]
    assert len(gpu["samples"][0]) == len(documented["gpus"]["0"]["samples"][0])


def test_workers_see_the_gpus_that_this_process_sees(store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, MIG-b")
    watch, both_ready = Watch(1), threading.Barrier(2, timeout=60)
    add = watch.add  # without the barrier one worker may time all before the other is there
    monkeypatch.setattr(watch, "add", lambda *gpu: (add(*gpu), both_ready.wait()))
    progress = run(store, local([0, 1], workers_per_gpu=1, watch=lambda: watch), PROBLEMS)
    assert watch.names == {0: "uuid-GPU-a", 1: "uuid-MIG-b"}
    assert progress.gpus[0].throttled == 0
    assert progress.gpus[1].throttled == progress.gpus[1].timings
    with pytest.raises(CollectionError, match="no GPU 2 here: CUDA_VISIBLE_DEVICES is"):
        run(store, local([2]), PROBLEMS)
    assert store.runs()[-1].state == "failed"


CLAIMS_THE_SECOND = """
import sys
from diode_engine.collect.run import claim_number
from diode_engine.location import location_of
from diode_engine.store.backends import backend_of
from tests.collect.test_collect import HERE, PROBLEMS
claims = backend_of(location_of(sys.argv[1])).claims()
assert claims.take(claim_number(PROBLEMS[1], HERE))
print("claimed", flush=True)
sys.stdin.read()
"""


def gone(store):
    """Waits until the server has noticed that a killed client is not there: by its lock."""
    taken = claim_number(PROBLEMS[1], HERE)
    with store.reads() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({taken})")


def test_a_problem_that_another_collection_is_at_is_left_to_it(place):
    Store.open(place).close()
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIMS_THE_SECOND, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with Store.open(place) as store:
        assert other.stdout.readline() == "claimed\n"
        progress = run(store, local(), PROBLEMS)
        assert (progress.problems_done, progress.problems_elsewhere) == (2, 1)
        assert PROBLEMS[1] not in store.read().problems
        other.kill()  # and its claims with it
        other.communicate()
        if not isinstance(store.location, Path):
            gone(store)
        progress = run(store, local(), PROBLEMS)
        assert (progress.problems_elsewhere, progress.timings) == (0, len(OFFERED))


def test_a_budget_goes_on_around_the_fastest_that_is_known(store):
    fast, near = tile(64, 64, 16), tile(64, 64, 16, 4)
    far = [tile(64, 64, 128, stages) for stages in (1, 2, 3, 4, 5)]
    problem = PROBLEMS[0]
    rows = [(problem, c, HERE, Timing(min_us=t)) for c, t in ((fast, 1.0), (far[0], 9.0))]
    store.add(store.start_run("collect", {}), TimingTable.from_records(rows))
    offered = [OFFERED[0], fast, near, *far]
    run(store, local(offered=offered, default=1), [problem], budget=5)
    timed = store.timed(problem, HERE)  # ATen, one at random, and one near
    assert len(timed) == 5
    assert near.key in timed


def test_workers_that_hang_when_they_start_end_the_run(store, monkeypatch):
    monkeypatch.setattr(worker_process, "START_SECONDS", 0.2)
    with pytest.raises(CollectionError, match="started"):
        run(store, local(hangs_on_arrival=True), PROBLEMS)


def test_a_gpu_that_is_lost_on_the_way_ends_the_run_and_keeps_what_is_there(tmp_path, store):
    log = tmp_path / "pids"
    script = {"fates": {FAST: "sticky"}, "log": str(log), "lives": 1, "default": len(OFFERED)}
    with pytest.raises(CollectionError, match="fallen off the bus"):
        run(store, local(workers_per_gpu=1, **script), PROBLEMS)
    assert store.runs()[-1].state == "failed"
    assert len(store.read()) >= BATCH
    assert len(log.read_text().splitlines()) == 1 + worker_process.MAX_FAILED_STARTS


def test_a_process_that_cannot_be_killed_is_not_waited_for(monkeypatch, caplog):
    """One that waits for its device in the kernel dies when the driver lets go of it."""

    class Stuck:
        pid = 2**22 + 1  # beyond what Linux gives

        def wait(self, timeout: float) -> None:
            raise subprocess.TimeoutExpired("a worker", timeout)

    children.end(Stuck())
    assert "cannot be killed" in caplog.text


def test_a_thread_does_not_wait_for_a_worker_that_cannot_be_killed(monkeypatch):
    monkeypatch.setattr(worker_process, "end", lambda process: None)
    process = worker_process.WorkerProcess(["sleep", "9"], "They", environment={}, deadline=1)
    with ThreadPoolExecutor(1) as threads:
        ready = threads.submit(process.ready)
        time.sleep(0.2)
        process.close()
        with pytest.raises(CollectionError, match="were ended"):
            ready.result(timeout=5)


@pytest.mark.parametrize(("when", "fails", "called"), [("start", 2, 2), ("close", 1, 3)])
def test_all_workers_are_ended_where_one_is_interrupted(monkeypatch, when, fails, called):
    act, workers = getattr(GpuWorker, when), []

    def interrupted(worker):
        act(worker)
        workers.append(worker)
        if len(workers) == fails:
            raise KeyboardInterrupt

    monkeypatch.setattr(GpuWorker, when, interrupted)
    with pytest.raises(KeyboardInterrupt), local(workers_per_gpu=3):
        pass
    assert [bool(w._process._process.poll()) for w in workers] == [True] * called


@pytest.fixture
def direct(tmp_path):
    return direct_setups(tmp_path)()


def test_a_problem_that_is_refused_after_a_worker_s_death_ends_no_collection(store, direct):
    deadly = worker({OFFERED[1]: "crash"}, refuses_one=True)
    progress = run(store, local(setup=replace(direct, worker=deadly)), PROBLEMS[:1])
    assert (progress.timings, progress.workers_lost, store.runs()[-1].state) == (0, 1, "done")


def test_a_direct_problem_is_split_only_where_a_plan_can_learn(tmp_path, direct, monkeypatch):
    monkeypatch.setattr("diode_engine.collect.run.BATCH", 2)
    monkeypatch.setattr("diode_engine.collect.run.WRITE_SECONDS", 0.0)
    sizes, add = [], Store.add
    monkeypatch.setattr(
        Store, "add", lambda store, run, table: (sizes.append(len(table)), add(store, run, table))
    )
    with Store.open(tmp_path / "all.db") as store:
        run(store, local(setup=direct), PROBLEMS[:1])
    assert sizes == [len(OFFERED)]
    sizes.clear()
    with Store.open(tmp_path / "budget.db") as store:
        run(store, local(setup=direct), PROBLEMS[:1], budget=len(OFFERED))
    assert max(sizes) <= len(OFFERED) // 4 + 1
    assert sum(sizes) == len(OFFERED)
    sizes.clear()
    large = Problem.make("mm", 16384, 16384, 16384, "bfloat16")  # some seconds for a batch
    with Store.open(tmp_path / "large.db") as store:
        run(store, local(setup=direct), [large])
    assert max(sizes) == 5


def test_what_is_not_compiled_is_not_expected_any_more(store, direct):
    executor = local(setup=direct, workers_per_gpu=1)
    progress = run(store, executor, PROBLEMS[:1], budget=len(OFFERED), compiles=3)
    assert progress.timings == progress.candidates < len(OFFERED)

"""What every executor promises, by the same tests: worker processes of this machine, and a Ray
cluster (skipped where Ray is not installed)."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from diode_engine.collect.local import LocalExecutor, Setup
from diode_engine.collect.planning.plan import CandidateSelection, Plan
from diode_engine.collect.processes.gpu_worker import MAX_DEATHS
from diode_engine.collect.run import BATCH, collect
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError
from diode_engine.runs import Job
from diode_engine.runs.process import current_process
from diode_engine.store import Store
from tests.collect.ray_cluster import KIND
from tests.samples import tile, timing_at

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent
PROBLEMS = [Problem.make("mm", 16 * n, 64, 64, "float16") for n in (1, 2, 3, 4, 5)]
OFFERED = [Candidate.make("aten::mm")] + [
    tile(m, 64, k, s) for m in (16, 32, 64) for k in (16, 32) for s in (1, 2, 3)
]
MIDDLE = OFFERED[len(OFFERED) // 2]


def with_script(name, script, value):
    """The command of a scripted process that finds its script, on whatever machine."""
    given = (f"PYTHONPATH={ROOT}", f"{name}={json.dumps(value)}")
    return ("env", *given, sys.executable, str(SCRIPTS / script))


def worker(fates=None, **more):
    value = {
        "offered": [c.to_dict() for c in more.pop("offered", OFFERED)],
        "fates": {str(c): fate for c, fate in (fates or {}).items()},
        "time_us": 5.0,
        **more,
    }
    return with_script("DIODE_SCRIPT", "scripted_worker.py", value)


def direct_setups(folder):
    """Makes the setup of a direct collection."""

    def made(fates=None, compiles=None, **more):
        value = {
            "log": str(folder / "compiled"),
            "fates": {str(c): fate for c, fate in (compiles or {}).items()},
            **more,
        }
        compiler = with_script("DIODE_COMPILER_SCRIPT", "scripted_compiler.py", value)
        return Setup(worker(fates), compiler, binaries=folder / "binaries")

    return made


@pytest.fixture(params=["local", "ray"])
def executor(request, monkeypatch):
    """Makes executors with two GPUs of a worker each."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if request.param == "local":
        return lambda **more: LocalExecutor([0, 1], **{"workers_per_gpu": 1} | more)
    address = request.getfixturevalue("two_machines").address
    from diode_engine.collect.cluster.executor import RayExecutor

    return lambda **more: RayExecutor(address, **{"workers_per_gpu": 1, "kind": KIND} | more)


def run(
    store, executor, problems=PROBLEMS, *, report=lambda _: None, adviser=lambda _: None, whole=0,
    **selection,
):  # fmt: skip
    plan = Plan.for_problems(problems, CandidateSelection(**selection), whole=whole)
    return collect(store, plan, executor, adviser=adviser, report=report)


def keys(store):
    """How often each pair was timed, by the keys of problem and candidate."""
    table = store.read()
    return Counter(
        (table.problems[p].key, table.candidates[c].key)
        for p, c in zip(table.problem, table.candidate, strict=True)
    )


class Watched:
    """An executor; `look` is called after each of its steps."""

    def __init__(self, executor, look):
        self._executor = executor
        self._look = look

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def __enter__(self):
        self._executor.__enter__()
        return self

    def __exit__(self, *error):
        self._executor.__exit__(*error)

    def run(self, sessions):
        for _ in self._executor.run(sessions):
            self._look()
            yield


TWO = PROBLEMS[:2]
ALL, ALL_OF_TWO = (
    Counter((p.key, c.key) for p in problems for c in OFFERED) for problems in (PROBLEMS, TWO)
)


def failures(store):
    table = store.read()
    return {
        (table.candidates[table.candidate[i]], timing_at(table, i).failure)
        for i in np.flatnonzero(table.failure)
    }


def test_a_plan_s_pairs_are_timed_once(store, executor):
    progress = run(store, executor(setup=Setup(worker())))
    assert keys(store) == ALL
    assert progress.problems_done == len(PROBLEMS)
    assert sum(gpu.timings for gpu in progress.gpus.values()) == len(PROBLEMS) * len(OFFERED)
    assert run(store, executor(setup=Setup(worker()))).timings == 0
    assert store.runs()[0].state == "done"


def test_a_budget_s_pairs_are_those_of_a_local_run(tmp_path, store, executor):
    chosen = {"budget": 8, "whole": 1}
    with Store.open(tmp_path / "here.db") as other:
        run(other, LocalExecutor([0], workers_per_gpu=1, setup=Setup(worker())), **chosen)
        here = keys(other)
    run(store, executor(setup=Setup(worker())), **chosen)
    assert keys(store) == here


def test_what_kernels_do_to_workers_costs_no_other_candidate(store, executor):
    crash, hang, sticky, wrong = OFFERED[2], OFFERED[5], OFFERED[8], OFFERED[11]
    fates = {crash: "crash", hang: "hang", sticky: "sticky", wrong: "wrong_result"}
    progress = run(store, executor(setup=Setup(worker(fates), deadline=1.0)), TWO)
    assert keys(store) == ALL_OF_TWO
    assert failures(store) == {
        (crash, Failure.CRASH), (hang, Failure.TIMEOUT),
        (sticky, Failure.ILLEGAL_ACCESS), (wrong, Failure.WRONG_RESULT),
    }  # fmt: skip
    assert progress.workers_lost == 3 * len(TWO)


@pytest.mark.parametrize("said", ["nonsense", "another kind"])
def test_a_worker_that_talks_nonsense_is_replaced(store, executor, said):
    progress = run(store, executor(setup=Setup(worker({MIDDLE: said}))), TWO)
    assert keys(store) == ALL_OF_TWO
    assert failures(store) == {(MIDDLE, Failure.CRASH)}
    assert progress.workers_lost == 2


def test_a_problem_that_is_refused_is_counted(store, executor):
    refused = Problem.make("mm", 8, 8, 13, "float16")
    progress = run(store, executor(setup=Setup(worker())), [refused, PROBLEMS[0]])
    assert (progress.problems_refused, progress.problems_done) == (1, 1)


def test_a_problem_that_kills_every_worker_is_left_alone(store, executor):
    deadly = worker(dict.fromkeys(OFFERED, "crash"))
    progress = run(store, executor(setup=Setup(deadly)), PROBLEMS[:1])
    assert len(keys(store)) == MAX_DEATHS
    assert progress.problems_done == 1


def test_workers_that_cannot_start_end_the_run_with_their_last_words(store, executor):
    with pytest.raises(CollectionError, match="no GPU today"):
        run(store, executor(setup=Setup(worker(dead_on_arrival=True))))
    assert store.runs()[-1].state == "failed"


def test_a_request_to_stop_keeps_what_is_there_and_ends_the_workers(
    tmp_path, store, executor, monkeypatch
):
    check, beat_now = Job.check, Job._beat
    monkeypatch.setattr(Job, "check", lambda job: (beat_now(job), check(job)))
    log, stopped = tmp_path / "pids", tmp_path / "stopped"
    fates = {OFFERED[-1]: f"stop {stopped}"}
    plan = Plan.for_problems(PROBLEMS[:1])
    made = executor(setup=Setup(worker(fates, log=str(log))))

    def ask_to_stop():
        if stopped.exists():  # the second batch's last candidate is at work
            store.ask_to_cancel(1)

    with pytest.raises(KeyboardInterrupt):
        collect(store, plan, Watched(made, ask_to_stop), adviser=lambda _: None)
    ended = store.run(1)
    assert (ended.state, ended.process) == ("cancelled", current_process())
    assert keys(store).total() == BATCH
    for pid in log.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    left = run(store, executor(setup=Setup(worker())), PROBLEMS[:1]).timings
    assert left == len(OFFERED) - BATCH
    assert set(keys(store).values()) == {1}


KILLED = """
import json, sys
from tests.collect.test_executors import *
kind, address, path, command = sys.argv[1:]
setup = Setup(tuple(json.loads(command)))
if kind == "local":
    made = LocalExecutor([0, 1], workers_per_gpu=1, setup=setup)
else:
    from diode_engine.collect.cluster.executor import RayExecutor
    made = RayExecutor(address, workers_per_gpu=1, kind=KIND, setup=setup)
with Store.open(path) as store:
    run(store, made)
"""


def test_a_run_that_is_killed_goes_on_and_times_nothing_twice(tmp_path, executor, request):
    stopped = tmp_path / "stopped"
    command = worker({MIDDLE: f"stop {stopped}"})
    kind = request.node.callspec.params["executor"]
    address = request.getfixturevalue("two_machines").address if kind == "ray" else ""
    path = tmp_path / "s.db"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, kind, address, str(path), json.dumps(command)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not stopped.exists() and process.poll() is None:
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    said = process.communicate()[1]
    assert stopped.exists(), said
    with Store.open(path) as store:
        before = keys(store)
        assert before < ALL
        again = run(store, executor(setup=Setup(worker()))).timings
        assert keys(store) == ALL
        assert again == (ALL - before).total()
    hung = Path(f"/proc/{stopped.read_text()}")
    while hung.exists() and "zombie" not in (hung / "status").read_text():
        os.sched_yield()  # it is gone with its run


@pytest.fixture
def direct(tmp_path):
    return direct_setups(tmp_path)


def test_a_direct_collection_compiles_each_kernel_once_before_it_asks(
    tmp_path, store, executor, direct
):
    run(store, executor(setup=direct()))
    assert keys(store) == ALL
    compiled = Counter(line.split()[1] for line in (tmp_path / "compiled").read_text().splitlines())
    assert set(compiled.values()) == {1}


def test_a_kernel_that_ends_a_direct_worker_is_found_among_the_others(store, executor, direct):
    run(store, executor(setup=direct({MIDDLE: "crash"})), TWO)
    assert keys(store) == ALL_OF_TWO
    assert failures(store) == {(MIDDLE, Failure.CRASH)}


def test_a_kernel_that_is_not_launched_directly_is_asked_for_alone(store, executor, direct):
    fates = {MIDDLE: "alone", OFFERED[2]: "wrong_result"}
    progress = run(store, executor(setup=direct(fates)), TWO)
    assert keys(store) == ALL_OF_TWO
    assert failures(store) == {(OFFERED[2], Failure.WRONG_RESULT)}
    assert progress.workers_lost == 0


def test_compilers_that_cannot_start_end_a_direct_collection(store, executor, direct):
    with pytest.raises(CollectionError, match="no compiler today"):
        run(store, executor(setup=direct(dead_on_arrival=True)))

"""Started, followed, cancelled in three ways, killed, resumed: with real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diode_engine.errors import RunError
from diode_engine.runs import cancel, command_line, follow, look, repeat, resume, settle, start
from diode_engine.runs.cancelling import ASKED_SECONDS
from diode_engine.runs.process import find_process, is_alive, kill
from diode_engine.store import RunState
from tests.runs.conftest import wait_for_end

PYTHON = sys.executable  # which the fixture job replaces


def begun(store, job, spec=None):
    run = start(store, "collect", spec or {})
    assert job.hear() == f"begun {run.id}"
    return store.run(run.id)


def do(job, word):
    job.tell(word)
    assert job.hear() == f"did {word}"


def test_options_become_words():
    spec = {"gpu": [0, 1], "budget": 8, "all": True, "quiet": False, "seed": None, "name": "-x y"}
    assert command_line("train", spec, Path("/d/s.db")) == (
        "diode-engine", "train", "--gpu=0", "--gpu=1", "--budget=8", "--all", "--name=-x y",
        "--store=/d/s.db",
    )  # fmt: skip
    with pytest.raises(RunError, match="no run of kind 'fly' to start"):
        command_line("fly", {}, Path("s.db"))


def test_a_run_is_a_process_of_its_own(store, job):
    run = begun(store, job, {"gpu": [0]})
    assert run.state is RunState.RUNNING
    assert run.command == ("diode-engine", "collect", "--gpu=0", f"--store={store.location}")
    assert run.spec == {"arguments": list(run.command[1:])}
    assert run.directory == str(Path.cwd())
    assert run.process.pid == os.getsid(run.process.pid) != os.getsid(0)
    assert Path(f"/proc/{run.process.pid}/fd/0").readlink() == Path("/dev/null")
    assert look(store, run.id).state is RunState.RUNNING
    do(job, "say")
    assert Path(run.log).read_text() == "from the job\n"
    assert Path(run.log).parent == store.location.with_name("diode.db-logs")
    job.tell("end")
    wait_for_end(run.process)
    assert look(store, run.id).state is RunState.DONE


def test_it_outlives_who_started_it(store, job, tmp_path):
    program = (
        "import sys\n"
        "from diode_engine.runs import launch\n"
        "from diode_engine.store import Store\n"
        "launch.sys.executable = sys.argv[2]\n"
        "print(launch.start(Store.open(sys.argv[1]), 'collect', {}).id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [PYTHON, "-c", program, str(store.location), str(tmp_path / "python")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as starter:  # fmt: skip
        run = int(starter.stdout.readline())
        assert job.hear() == f"begun {run}"
        os.killpg(starter.pid, signal.SIGKILL)
        assert starter.wait() == -signal.SIGKILL
    do(job, "check")
    assert look(store, run).state is RunState.RUNNING
    job.tell("end")
    wait_for_end(store.run(run).process)
    assert look(store, run).state is RunState.DONE


def test_following_ends_with_the_last_word_of_the_log(store, job):
    run = begun(store, job)
    ticks = follow(store, run.id, sleep=lambda _: wait_for_end(run.process))
    do(job, "say")
    first = next(ticks)
    assert (first.status.state, first.log) == (RunState.RUNNING, "from the job\n")
    job.tell("end")
    (last,) = ticks
    assert (last.status.state, last.log) == (RunState.DONE, "the last word\n")


def test_following_waits_for_a_process_that_has_its_last_word_to_say(store, job):
    run = begun(store, job)
    store.finish_run(run.id, "done")
    sleeps = []

    def sleep(_):
        if len(sleeps) == 1:
            job.tell("end")
            wait_for_end(run.process)
        sleeps.append(1)

    assert [tick.log for tick in follow(store, run.id, sleep=sleep)] == ["", "", "the last word\n"]


class Slow:
    """A clock that goes on while somebody sleeps; from the sentence `until` on, sleeping is
    waiting for the run's end instead."""

    def __init__(self, until, end):
        self.now = 0.0
        self.told = []
        self._until = until
        self._end = end

    def tell(self, sentence):
        self.told.append(sentence)

    def sleep(self, seconds):
        if any(self._until in sentence for sentence in self.told):
            self._end()
        else:
            self.now += seconds

    def cancel(self, store, run):
        return cancel(store, run, tell=self.tell, clock=lambda: self.now, sleep=self.sleep)


def test_cancelling_first_asks_the_run_to_stop(store, job):
    run = begun(store, job)

    def end():
        job.tell("check")
        wait_for_end(run.process)

    slow = Slow("asked", end)
    status = slow.cancel(store, run.id)
    assert (status.state, slow.now) == (RunState.CANCELLED, 0)
    assert slow.told == [f"Run {run.id} was asked to stop ..."]
    with pytest.raises(RunError, match="is cancelled already"):
        cancel(store, run.id)


def test_cancelling_then_sends_sigterm(store, job):
    run = begun(store, job)
    slow = Slow("terminated", lambda: wait_for_end(run.process))
    assert slow.cancel(store, run.id).state is RunState.CANCELLED
    assert slow.now >= ASKED_SECONDS
    assert "last word" in Path(run.log).read_text()  # it came to its end in order


def test_cancelling_at_last_kills_the_run_and_all_that_it_started(store, job):
    run = begun(store, job)
    do(job, "deaf")
    job.tell("child")
    child = find_process(int(job.hear()))
    slow = Slow("killed", lambda: wait_for_end(run.process))
    status = slow.cancel(store, run.id)
    assert status.state is RunState.CANCELLED
    assert status.run.message == "stopped by the user, before it could end itself"
    assert Path(run.log).read_text() == ""
    wait_for_end(child)
    assert not is_alive(child)


def test_a_run_that_is_not_a_command_here_is_only_asked(store):
    run = store.start_run("train", {}, process=find_process(os.getpid()))
    slow = Slow("never", lambda: None)
    assert slow.cancel(store, run).state is RunState.CANCELLING
    assert slow.told == [f"Run {run} was asked to stop ..."]


def test_a_killed_run_is_dead_and_goes_on_as_another(store, job):
    run = begun(store, job, {"budget": 8})
    kill(run.process)
    wait_for_end(run.process)
    assert look(store, run.id).state is RunState.DEAD
    with pytest.raises(RunError, match="is dead already"):
        cancel(store, run.id)
    again = resume(store, run.id)
    assert job.hear() == f"begun {again.id}"
    assert (again.resumes, again.command, again.kind) == (run.id, run.command, run.kind)
    assert again.log != run.log
    with pytest.raises(RunError, match=f"Run {run.id} was resumed already, as run {again.id}"):
        resume(store, run.id)
    with pytest.raises(RunError, match="is running; cancel it first"):
        resume(store, again.id)
    job.tell("end")
    wait_for_end(store.run(again.id).process)
    with pytest.raises(RunError, match="is done, so it cannot be resumed"):
        resume(store, again.id)


def test_what_cannot_be_resumed_says_why(store, tmp_path):
    run = store.start_run("train", {})
    store.finish_run(run, "failed")
    with pytest.raises(RunError, match="not started as a command"):
        resume(store, run)
    gone = str(tmp_path / "gone")
    run = store.start_run("train", {}, command=["diode-engine", "train"], directory=gone)
    store.finish_run(run, "failed")
    with pytest.raises(RunError, match=r"The folder .*gone, where run 2 was started, is gone"):
        resume(store, run)
    assert len(store.runs()) == 2


@pytest.mark.parametrize(
    "words",
    ["capture --output=x.json -- touch done", "-v --debug capture -- touch done", "workflow x.toml",
     "data export /home/me/mine.json", "db vacuum", "models remove mine --yes", "--", ""],
)  # fmt: skip
def test_a_store_that_others_write_does_not_say_what_is_started(store, tmp_path, words):
    """Whoever can write a store can write any command beside a run."""
    command = ["diode-engine", *words.split()]
    run = store.start_run("train", {}, command=command, directory=str(tmp_path))
    store.finish_run(run, "failed")
    for again in (resume, repeat):
        with pytest.raises(RunError, match=r"records .* which is not a command that makes runs"):
            again(store, run)
    assert len(store.runs()) == 1


@pytest.mark.parametrize("words", ["-v collect-shapeset a.json", "data import a.json", "demo"])
def test_a_run_of_each_command_is_done_once_more(store, monkeypatch, tmp_path, words):
    command = ["diode-engine", *words.split()]
    run = store.start_run("collect", {}, command=command, directory=str(tmp_path))
    store.finish_run(run, "failed")
    monkeypatch.setattr("diode_engine.runs.launch.sys.executable", "/bin/true")
    assert repeat(store, run).command == tuple(command)


def test_what_has_ended_can_be_done_once_more(store, job):
    run = begun(store, job, {"gpu": [0]})
    with pytest.raises(RunError, match="running; cancel it first"):
        repeat(store, run.id)
    job.tell("end")
    wait_for_end(run.process)
    again = repeat(store, run.id)
    assert job.hear() == f"begun {again.id}"
    assert (again.command, again.resumes) == (run.command, None)
    job.tell("end")
    wait_for_end(store.run(again.id).process)


def test_a_process_that_cannot_be_started_is_a_failed_run(store, monkeypatch, tmp_path):
    monkeypatch.setattr("diode_engine.runs.launch.sys.executable", str(tmp_path / "none"))
    with pytest.raises(RunError, match="Run 1 could not be started"):
        start(store, "train", {})
    assert look(store, 1).state is RunState.FAILED


# Diode's own commands


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("train", {"wings": 2}, "No such option '--wings'."),  # click may propose another
        ("validate", {"dataset": "none.json"}, "There is no file none.json; check its name."),
        ("train", {"family": "trees"}, "There are no timings to learn from"),  # its run begins
    ],
)
def test_a_command_that_fails_is_a_failed_run(store, kind, spec, message):
    run = start(store, kind, spec)
    wait_for_end(run.process)
    (ended,) = store.runs()
    assert ended.state is RunState.FAILED
    assert message in ended.message
    assert ended.message in " ".join(Path(ended.log).read_text().split())


@pytest.mark.parametrize(
    ("code", "state", "message"),
    [(0, "done", None), (1, "failed", "why"), (2, "failed", "why"), (130, "cancelled", "why")],
)
def test_a_command_that_never_began_its_run_ends_it_by_its_exit_code(
    store, monkeypatch, tmp_path, code, state, message
):
    run = store.queue_run("train", {}, command=[], directory="/", logs=tmp_path)
    Path(run.log).write_text("Usage: ...\n\nError: why\n")
    monkeypatch.setenv("DIODE_RUN", f"{run.id}:{store.location}")
    settle(code)
    ended = store.run(run.id)
    assert (ended.state, ended.message) == (state, message)
    settle(3)  # a run that has ended is left alone
    assert store.run(run.id) == ended

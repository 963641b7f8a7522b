"""diode-engine runs: what it shows, on which stream, and how it exits."""

from __future__ import annotations

import getpass
import shlex
from dataclasses import replace

import pytest

from diode_engine.cli import ExitCode
from diode_engine.cli.runs import progress_text
from diode_engine.runs import cancel, launch
from diode_engine.runs.process import current_process
from diode_engine.store import Store

GONE = replace(current_process(), started=1)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A done, a failed, a dead and a running run."""
    path = tmp_path / "diode.db"
    monkeypatch.setenv("DIODE_STORE", str(path))
    with Store.open(path) as opened:
        opened.finish_run(opened.start_run("collect", {"seed": 3}), "done", "all timed")
        log = tmp_path / "run.log"
        log.write_text("".join(f"line {i}\n" for i in range(20)))
        failed = opened.queue_run(
            "train", {}, command=["diode-engine", "train", "--name=a b"], directory=str(tmp_path),
            logs=tmp_path,
        )  # fmt: skip
        log.rename(failed.log)
        opened.finish_run(failed.id, "failed", "no timings")
        opened.start_run("collect", {}, process=GONE)
        running = opened.start_run("train", {}, process=current_process())
        opened.update_run(running, progress={"step": 3, "efficiency": 0.91234})
        yield opened


def test_the_list_has_the_last_run_first(store, run):
    shown = run("runs", "list")
    lines = shown.out.splitlines()
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    assert [line.split()[:3] for line in lines[2:]] == [
        ["4", "train", "running"],
        ["3", "collect", "dead"],
        ["2", "train", "failed"],
        ["1", "collect", "done"],
    ]
    assert lines[2].endswith("step 3, efficiency 0.9123")
    assert lines[3].endswith("Its process was gone before it came to its end.")
    assert lines[5].endswith("all timed")


def test_the_list_as_json_and_by_state(store, run):
    shown = run("runs", "list", "--json", "--state", "dead", "--state", "done").json()
    assert [(r["id"], r["state"]) for r in shown] == [(3, "dead"), (1, "done")]
    assert (shown[1]["spec"], shown[1]["message"]) == ({"seed": 3}, "all timed")
    assert run("runs", "list", "--json", "--state", "queued").json() == []
    run("runs", "list", "--state", "queued").says(ExitCode.OK, "'state:queued' finds no run in ")


def test_the_list_by_a_query_and_in_pages(store, run):
    def numbers(*words):
        return [r["id"] for r in run("runs", "list", "--json", *words).json()]

    assert numbers("kind:train") == [4, 2]
    assert numbers("-state:dead,done", "kind:train", "id>2") == [4]
    assert numbers("kind:collect", "--state", "dead") == [3]
    assert numbers("--rows", 2) == [4, 3]
    assert numbers("--rows", 2, "--before", 3) == [2, 1]
    assert "--before 3 shows earlier ones." in run("runs", "list", "--rows", 2).err


def test_tags_and_a_note_are_written_found_and_taken_away(store, run):
    assert run("runs", "tag", 2, "paper", "v2").code == ExitCode.OK
    assert run("runs", "note", 2, "the good one").json() == {
        "id": 2, "tags": ["paper", "v2"], "note": "the good one",
    }  # fmt: skip
    assert "the good one" in run("runs", "show", 2).out
    line = run("runs", "list", "tag:v2").out.splitlines()[2]
    assert line.split()[0] == "2"
    assert "paper v2" in line
    rows = run("runs", "list", "tag:v2", "--csv").out.splitlines()
    assert rows[0].startswith("id,kind,state,started")
    assert "paper v2,the good one,no timings" in rows[1]
    assert run("runs", "untag", 2, "paper").json()["tags"] == ["v2"]
    assert run("runs", "note", 2, "").json()["note"] is None
    run("runs", "tag", 2, "two words").says(ExitCode.FAILURE, "is no tag")


def test_show_tells_all_and_the_end_of_the_log(store, run):
    out = run("runs", "show", 2).out
    fields = dict(line.split("  ", 1) for line in out.splitlines() if "  " in line)
    assert shlex.split(fields["command"]) == ["diode-engine", "train", "--name=a b"]
    assert (fields["run"].strip(), fields["state"].strip()) == ("2, train", "failed")
    assert out.splitlines()[-10:] == [f"line {i}" for i in range(10, 20)]
    shown = run("runs", "show", "2", "--json").json()
    assert shown["command"] == ["diode-engine", "train", "--name=a b"]
    out = run("runs", "show", 4).out
    assert f"{current_process().pid} on {current_process().host}" in out
    assert "ago" in out
    user = run("runs", "show", "4", "--json").json()["user"]
    assert user == getpass.getuser()
    assert f"started by     {user}" in out
    assert f"{user}  {current_process().host}" in run("runs", "list").out


def test_follow_writes_the_log_to_stdout_and_its_exit_code_is_the_runs(store, run):
    failed = run("runs", "follow", 2)
    assert failed.code == ExitCode.FAILURE
    assert failed.out == "".join(f"line {i}\n" for i in range(20))
    assert failed.err == "Run 2 is failed: no timings\n"
    store.update_run(1, progress={"timings": 7})
    done = run("runs", "follow", 1)
    assert (done.code, done.out) == (ExitCode.OK, "")
    assert done.err == "collect: timings 7\nRun 1 is done: all timed\n"
    run("runs", "follow", 3).says(ExitCode.FAILURE, "Run 3 is dead: Its process was gone")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["show", 9], 3, "has no run 9; `diode-engine runs list` shows"),
        (["follow", 10**20], 2, "is not in the range"),
        (["cancel", 9], 3, "has no run 9"),
        (["cancel", 1], 3, "Run 1 is done already; there is nothing to cancel."),
        (["cancel", 3], 3, "Run 3 is dead already"),
        (["resume", 1], 3, "Run 1 is done, so it cannot be resumed"),
        (["resume", 3], 1, "was not started as a command"),
        (["resume", 4], 1, "Run 4 is running; cancel it first."),
    ],
)
def test_what_is_impossible_is_refused_in_a_sentence(store, run, arguments, code, sentence):
    run("runs", *arguments).says(code, sentence)
    assert len(store.runs()) == 4


def test_cancel_stops_a_run(store, run, monkeypatch):
    def answers(_):
        store.finish_run(4, "cancelled", "stopped by the user")

    monkeypatch.setitem(cancel.__kwdefaults__, "sleep", answers)
    shown = run("runs", "cancel", 4)
    assert (shown.code, shown.out) == (ExitCode.OK, "")
    assert shown.err.splitlines() == [
        "Run 4 was asked to stop ...",
        "Run 4 is cancelled: stopped by the user",
    ]


def test_resume_starts_the_same_command_and_says_which_run(store, run, monkeypatch):
    started: list[list[str]] = []

    class Started:
        pid = current_process().pid

        def __init__(self, words, **_):
            started.append(words)

        def wait(self):
            return 0

    monkeypatch.setattr(launch.subprocess, "Popen", Started)
    shown = run("runs", "resume", 2)
    assert (shown.code, shown.out) == (ExitCode.OK, "5\n")
    assert "Run 5 continues run 2" in shown.err
    assert started[0][-2:] == ["train", "--name=a b"]
    assert "run 2" in run("runs", "show", 5).out


def test_progress_in_one_line():
    progress = {
        "member": "trees", "problems_done": 3, "rate": 1234.5678, "none": None, "failures": {},
        "by_kind": {"crash": 2, "timeout": 1}, "clocks": [[1, 2], [3, 4]],
    }  # fmt: skip
    assert progress_text(progress) == (
        "member trees, problems done 3, rate 1235, by kind crash 2 timeout 1"
    )

"""A process is told from a later one with its pid, and ended with all that it started."""

import os
import subprocess
import sys
from dataclasses import replace

from diode_engine.runs import process as processes
from diode_engine.runs.process import current_process, find_process, is_alive, kill, terminate
from tests.runs.conftest import wait_for_end

WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_this_process_is_alive():
    assert is_alive(current_process()) is True
    assert current_process() == find_process(os.getpid())


def test_another_with_its_pid_is_not_it():
    ours = current_process()
    assert is_alive(replace(ours, started=ours.started + 1)) is False


def test_of_another_machine_boot_or_container_nothing_can_be_said():
    assert is_alive(replace(current_process(), machine="another boot pid:[1]")) is None


def test_a_zombie_is_not_alive():
    child = subprocess.Popen(WAITS, stdin=subprocess.PIPE)
    known = find_process(child.pid)
    assert is_alive(known) is True
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(known) is False
    child.wait()
    assert is_alive(known) is False


def test_no_signal_reaches_a_later_process_with_the_pid():
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        known = find_process(child.pid)
        earlier = replace(known, started=known.started - 1)
        terminate(earlier)
        kill(earlier)
        child.stdin.close()
        assert child.wait() == 0


def test_killing_takes_the_children_in_other_sessions():
    program = (
        "import subprocess, sys\n"
        f"subprocess.Popen({WAITS!r}, stdin=subprocess.PIPE, start_new_session=True)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        (grandchild,) = processes._family(find_process(child.pid))
        kill(find_process(child.pid))
        assert child.wait() == -9
        wait_for_end(grandchild)
        assert not is_alive(grandchild)


def test_without_proc_the_pid_decides(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert current_process().started is None
    assert is_alive(current_process()) is True
    with subprocess.Popen(WAITS, stdin=subprocess.DEVNULL) as child:
        known = find_process(child.pid)
        child.wait()
    assert is_alive(known) is False

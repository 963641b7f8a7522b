"""Runs of a scripted job, which does what it is told and waits to be told."""

import os
import select
import sys
from pathlib import Path

import pytest

from diode_engine.runs import launch
from diode_engine.store import Store

JOB = Path(__file__).with_name("scripted_job.py")


class Job:
    """The other end of a scripted job: `tell` it what to do, `hear` what it says."""

    def __init__(self, folder):
        self._paths = [folder / "to-job", folder / "from-job"]
        for path in self._paths:
            os.mkfifo(path)
        # Opened for both, so that neither waits for the other end.
        self._to, self._from = (path.open("r+b", buffering=0) for path in self._paths)

    def tell(self, word):
        self._to.write(f"{word}\n".encode())

    def hear(self):
        return self._from.readline().decode().strip()

    def close(self):
        self._to.close()
        self._from.close()


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "diode.db") as store:
        yield store


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Runs are done by the scripted job in place of Diode's commands."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{JOB}" "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(launch.sys, "executable", str(interpreter))
    monkeypatch.setenv("DIODE_JOB", str(tmp_path))
    made = Job(tmp_path)
    yield made
    made.close()


def wait_for_end(process):
    """Until the process has exited."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], 60)
    finally:
        os.close(descriptor)
    assert ready

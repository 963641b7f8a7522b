"""GPUs by number and by name, their locks, and the folders of processes that were killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from diode_engine.collect import gpus
from diode_engine.collect.gpus import lock_of, visible_to_a_child
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.errors import CollectionError


@pytest.mark.parametrize(
    ("given", "number", "seen"),
    [(None, 3, "3"), ("2,5", 1, "5"), ("GPU-1a2b, MIG-3c", 1, "MIG-3c"), ("7", 0, "7")],
)
def test_a_child_sees_the_entry_that_its_parent_sees(given, number, seen, monkeypatch):
    monkeypatch.delenv(gpus.VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(gpus.VARIABLE, given)
    assert visible_to_a_child(number) == seen


@pytest.mark.parametrize("given", ["", "0", "0,"])
def test_a_gpu_that_is_not_visible(given, monkeypatch):
    monkeypatch.setenv(gpus.VARIABLE, given)
    with pytest.raises(CollectionError, match="There is no GPU 1 here"):
        visible_to_a_child(1)


def test_the_lock_of_a_gpu_is_in_one_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))
    monkeypatch.setattr(gpus, "_LOCKS", tmp_path)
    lock = lock_of("a-b")
    assert lock == lock_of("a-b") == tmp_path / f"diode-{os.getuid()}" / "gpu-a-b.lock"
    assert lock.parent.stat().st_mode & 0o777 == 0o700
    lock.parent.rmdir()
    lock.parent.symlink_to(tmp_path)
    with pytest.raises(CollectionError, match="cannot be used: it is another user's"):
        lock_of("a-b")


HOLDS_ONE = """
import sys
from diode_engine.collect.processes.scratch import Scratch
scratch = Scratch("diode-test-")
(scratch.path / "file").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "diode-test-of-somebody").mkdir()  # no folder of ours: it has no lock
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    folder = Path(child.stdout.readline().strip())
    mine = Scratch("diode-test-")
    assert (folder / "file").exists()  # it lives
    child.send_signal(signal.SIGKILL)
    child.communicate()
    other = Scratch("diode-test-")
    assert not folder.exists()
    assert mine.path.exists()
    for scratch in (mine, other):
        scratch.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["diode-test-of-somebody"]

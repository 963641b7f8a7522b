"""Disks that are full or read-only, and stores that are locked."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from diode_engine.store import Store, write_dataset
from diode_engine.store.backends import sqlite_connection
from tests.soak import damage, made, work
from tests.soak.children import done


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return made.store(tmp_path_factory.mktemp("good") / "good.db")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """Timings that the store has not."""
    path = tmp_path_factory.mktemp("more") / "more.json"
    write_dataset(work.table(30, 20, first=500), path)
    return path


_IN_A_SMALL_FOLDER = """
mount -t tmpfs -o size=3000k tmpfs "$1" || exit 99
"$2" -m diode_engine db backup "$1/copy.db" --store "$3"
echo $? $(ls -A "$1")
"""


def test_a_backup_that_finds_no_room_leaves_nothing(tmp_path):
    """On a disk that is really full: SQLite leaves a journal there, which a limit on the length
    of files does not make it do."""
    store, target = tmp_path / "a.db", tmp_path / "small"
    target.mkdir()
    with Store.open(store) as opened:  # larger than SQLite's cache
        opened.add(opened.start_run("collect", {}), work.table(1600, 100))
    ran = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", _IN_A_SMALL_FOLDER, "sh",
         target, sys.executable, store],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode in (1, 99):
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert ran.stdout == "1\n"
    assert "cannot be written: database or disk is full" in ran.stderr


def test_a_store_on_a_full_disk_says_what_to_do(tmp_path, good, more):
    store = shutil.copy(good, tmp_path / "a.db")
    asked = ("data", "import", more, "--store", store)
    (code, out, err), _ = done(work.command, *asked, home=tmp_path, limit=30_000)
    assert (code, out) == (1, "")
    assert "free some space" in " ".join(err.split())


@pytest.fixture
def shared():
    """A folder that every user of this machine can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.mark.parametrize("mode", [0o555, 0o755], ids=["the folder", "the file"])
def test_what_may_only_be_read(tmp_path, shared, good, more, mode):
    """Reading goes, writing is refused in a sentence, and nothing is changed."""
    store = Path(shutil.copy(good, shared / "a.db"))
    file = Path(shutil.copy(more, shared / "more.json"))
    store.chmod(0o444)
    shared.chmod(mode)
    out = Path(tempfile.mkdtemp(dir=shared.parent))
    out.chmod(0o777)
    try:
        reads, writes = list(damage.reading(store, out)), list(damage.writing(store, file))
        ran, _ = done(work.as_another_user, [*reads, *writes], str(out), home=tmp_path)
    finally:
        shutil.rmtree(out)
    for asked, answer in zip([*reads, *writes], ran, strict=True):
        damage.judge(answer, asked)
        assert (answer[0] == 0) is (asked in reads), (asked, answer)
    assert store.read_bytes() == good.read_bytes()
    assert sorted(path.name for path in shared.iterdir()) == ["a.db", "more.json"]


@pytest.mark.parametrize("lock", ["write", "all"])
def test_a_store_that_stays_locked(tmp_path, good, more, monkeypatch, lock):
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.01)
    store = Path(shutil.copy(good, tmp_path / "a.db"))
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        if lock == "all":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE runs SET note = 'mine'")
        for asked in damage.reading(store, tmp_path):
            code, _, err = ran = work.command(*asked)
            damage.judge(ran, asked)
            assert (code == 0) is (lock == "write"), (asked, err)
            assert lock == "write" or "locked by another process" in err
        for asked in damage.writing(store, more):
            code, _, err = ran = work.command(*asked)
            damage.judge(ran, asked)
            idle = asked[1] == "upgrade" and lock == "write"  # it has nothing to do
            assert code == 0 if idle else "locked by another process" in err, (asked, ran)
        other.execute("ROLLBACK")
    assert work.content(store) == work.content(good)

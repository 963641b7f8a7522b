"""Files that are written whole or not at all, wherever Diode writes one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from diode_app import settings
from diode_engine import atomic
from diode_engine.atomic import FileKind, kind_of, scratch_beside, whole_file, write_whole
from diode_engine.cli.files import write_output
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.paths import shipped_dir
from diode_engine.problems.sources.shapeset import write_shapeset
from diode_engine.store import Store, maintenance, write_dataset
from diode_engine.store.datasets.format import SUFFIXES


def test_the_file_is_the_new_one_or_the_old_one(tmp_path):
    path = tmp_path / "a"
    write_whole(path, "first é")
    assert path.read_text(encoding="utf-8") == "first é"

    def fails() -> None:
        with whole_file(path) as file:
            file.write(b"second")
            file.flush()
            assert path.read_text(encoding="utf-8") == "first é"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert path.read_text(encoding="utf-8") == "first é"
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208


def test_its_rights_are_what_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_link_under_the_name_that_it_takes_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".unfinished-guessed").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "a", b"theirs")
    with pytest.raises(FileExistsError), scratch_beside(tmp_path / "a"):
        pass
    assert victim.read_text() == "mine"
    assert (tmp_path / ".unfinished-guessed").is_symlink()


def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(OSError, match="regular file"):
            write_whole(path, b"")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


_EMPTY = TimingTable.from_records([])
_SETTINGS = settings.Settings()


def back_up(path: Path) -> None:
    store = path.with_name("diode.db")
    Store.open(store).close()
    maintenance.back_up(store, path)


# Each writes a file at the path it is given.
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "dataset": ("a.json", lambda path: write_dataset(_EMPTY, path)),
    "shapeset": (
        "a.json",
        lambda path: write_shapeset([Problem.make("mm", 1, 2, 3, "float16")], path, "a test"),
    ),
    "workflow, page of a tuning": ("a.json", lambda path: write_output(path, "{}", kept="It is.")),
    "settings": ("a.toml", lambda path: settings.save(path, _SETTINGS)),
    "backup": ("a.db", back_up),
}


@pytest.mark.parametrize("what", list(WRITERS))
def test_a_name_that_somebody_could_guess_is_not_written_to(tmp_path, what):
    name, write = WRITERS[what]
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "shared"
    folder.mkdir()
    for guess in (f".{name}.{os.getpid()}.tmp", f".unfinished-{name}", f"{name}.tmp"):
        (folder / guess).symlink_to(victim)
    write(folder / name)
    assert victim.read_text() == "mine"
    assert (folder / name).is_file()
    assert not (folder / name).is_symlink()


# SQLite writes a backup itself: see tests/cli/test_faults.py.
@pytest.mark.parametrize("what", sorted(set(WRITERS) - {"backup"}))
def test_where_the_disk_is_full_nothing_is_left(tmp_path, monkeypatch, what):
    name, write = WRITERS[what]
    write(tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space left") as raised:
        write(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert not isinstance(raised.value, OSError), "a sentence of Diode's"


KINDS: dict[str, tuple[bytes, FileKind | None]] = {
    "nothing": (b"", None),
    "an empty object": (b" {}\n", None),
    "another program's database": (b"SQLite format 3\0" + bytes(84), FileKind.OTHER),
    "a zip": (b"PK\3\4" + bytes(26) + b"notes.txt", FileKind.OTHER),
    "torch-diode's dataset": (b'{"hardware": {"NVIDIA H100": {"operation": {', FileKind.DATASET),
    "a report": (b'{"hardware": "NVIDIA H100", "model": "gemm@1"}', FileKind.TEXT),
    "torch-diode's shapeset": (b'{"operations": {"mm": {"shapes": [', FileKind.SHAPESET),
    "another page": (b"<!doctype html>\n<html><body>", FileKind.TEXT),
    "a tuning's page": (b"# gemm@2 for NVIDIA H200\n\nTuned from gemm@1", FileKind.TUNING),
    "a comparison": (b'{\n "solution": "found",\n "configs": 2,', FileKind.COMPARISON),
    "a page": ("# Möglich\n".encode() * 500, FileKind.TEXT),
    "Latin-1": ("Möglich".encode("latin-1"), FileKind.OTHER),
    "a figure": (b'<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg width="1">', FileKind.FIGURE),
}


@pytest.mark.parametrize("what", list(KINDS))
def test_the_kind_of_a_file_is_known_by_its_beginning(tmp_path, what):
    content, kind = KINDS[what]
    (tmp_path / "a").write_bytes(content)
    assert kind_of(tmp_path / "a") is kind


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_dataset_of_each_form_is_known(tmp_path, suffix):
    write_dataset(_EMPTY, tmp_path / f"a{suffix}")
    assert kind_of(tmp_path / f"a{suffix}") is FileKind.DATASET


def test_a_large_dataset_is_known_and_a_damaged_one_is_not_nothing(tmp_path):
    """Its first compressed block is longer than the beginning that is read of other files."""
    shipped = shipped_dir() / "datasets/nvidia-h100/tune-2026-11-23.packed.zst"
    assert kind_of(shipped) is FileKind.DATASET
    (tmp_path / "a").write_bytes(shipped.read_bytes()[:500])
    assert kind_of(tmp_path / "a") is FileKind.OTHER


def test_a_page_of_any_length_is_a_text(tmp_path):
    """A letter may be cut where the beginning ends."""
    for spaces in range(4):
        (tmp_path / "a").write_text(" " * spaces + "ü" * 5000 + "€" * 5000, encoding="utf-8")
        assert kind_of(tmp_path / "a") is FileKind.TEXT

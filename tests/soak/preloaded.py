"""Imported by the server that children are forked from, and by nothing else: does all once that
they do, so that the modules that it needs, some of which are imported when they are first used,
are there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.soak import made, work

with tempfile.TemporaryDirectory() as _name:
    _folder = Path(_name)
    os.environ["DIODE_HOME"] = str(_folder / "home")
    _store = str(made.store(_folder / "a.db"))
    work.command("db", "upgrade", "--store", _store)
    for _words in (
        "db check",
        "data stats",
        "data problems",
        "data map",
        "runs list",
        "data show 1",
        "runs show 1",
        "runs follow 1",
        "runs tag 1 x",
        "db vacuum",
    ):
        work.command(*_words.split(), "--store", _store)
    for _file in ("a.json", "a.packed.zst"):
        work.command("data", "export", _folder / _file, "--store", _store)
        work.command("data", "import", _folder / _file, "--store", _folder / f"{_file}.db")
    work.command("draw-problems", _folder / "v.json", "--problems", "2", "--store", _store)
    work.command("db", "backup", _folder / "copy.db", "--store", _store)
    work.content(Path(_store))
    _model = made.model(_folder / "model")
    work.register(str(_model))
    work.promote("mine@1")

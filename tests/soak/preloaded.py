"""Imported by the server that children are forked from, and by nothing else: does all once that
they do, so that the modules that it needs, some of which are imported when they are first used,
are there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.soak import damage, made, work

with tempfile.TemporaryDirectory() as _name:
    _folder = Path(_name)
    os.environ["DIODE_HOME"] = str(_folder / "home")
    _store, _file = made.store(_folder / "a.db"), _folder / "a.packed.zst"
    work.command("data", "export", _file, "--store", _store)
    for _words in (*damage.reading(_store, _folder), *damage.writing(_store, _file)):
        work.command(*_words)
    work.register(str(made.model(_folder / "model")))
    work.promote("mine@1")

"""Reports on a program: on a command, which runs to its end, or on a part of this process."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diode_engine.atomic import FileKind, write_whole
from diode_engine.choosing.frozen import FREEZING
from diode_engine.choosing.frozen_file import render
from diode_engine.collect.capture import Watched, watch
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.torch_internals.graph_caches import count_cached_graphs
from diode_engine.reports import record
from diode_engine.reports.assembling import assemble
from diode_engine.reports.freezing import freeze
from diode_engine.reports.record import Report
from diode_engine.reports.text import render_text

log = logging.getLogger(__name__)


def watch_program(
    command: Sequence[str], stdout: int | None = None, *, freezing: bool = False
) -> Watched:
    """Runs the command to its end, with Diode on in all its Python processes, and returns what
    these noted. `stdout` is a file descriptor for the program's output, None for this process's.
    With `freezing` each product gets one kernel, and frozen choices are not loaded. Raises
    CollectionError where the command cannot be started."""
    freeze = {FREEZING: "1"} if freezing else {}
    return watch(command, {"DIODE_AUTOLOAD": "1", **freeze}, stdout)


class ProgramReport:
    """The report of a part of this process. As a text it is the table of its products. `path` is
    its file, None until the part has ended."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._noted: list[dict[str, Any]] = []
        self.notes = ProductNotes(lambda **note: self._noted.append(note))
        self._cached = count_cached_graphs()  # before

    def read(self) -> Report:
        """Return the report of what was compiled so far."""
        self.notes.note_runs()
        cached = {"cached": max(0, count_cached_graphs() - self._cached)}
        return assemble([[*self._noted, cached]], shlex.join(sys.argv))

    def freeze(self, path: Path | str) -> None:
        """Write what was chosen so far to a file of frozen choices. Raises FrozenChoicesError where
        there is not one choice for each product, OSError where it cannot be written."""
        made = freeze([self._noted], shlex.join(sys.argv))
        write_whole(Path(path), render(made), kind=FileKind.FROZEN)

    def __str__(self) -> str:
        return render_text(self.read())


@contextmanager
def report() -> Iterator[ProgramReport]:
    """Collects what this process compiles while it is open, in all threads: the products, where
    they are in the model, what Diode chooses for them, and what that gains.

    The report can be printed or read at any time. At the end it is written to a file that the
    dashboard shows; its `path` says where. Where that fails, the log says so, and the program goes
    on. What comes from Inductor's caches is not compiled, and the report counts it.
    """
    program = ProgramReport()
    program.notes.begin()
    try:
        yield program
    finally:
        try:
            program.notes.end()
            program.path = record.write(program.read())
        except Exception as error:
            log.warning("The report was not written: %s", error, exc_info=True)

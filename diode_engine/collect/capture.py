"""Runs a program and collects what its processes note: which products they compile."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError, explain_os_error
from diode_engine.inductor.hook.product_notes import FOLDER
from diode_engine.inductor.listening import capture

AT_START = Path(capture.__file__).parent / "at_start"
PATIENCE_SECONDS = 20.0  # how long an interrupted program may take to end


@dataclass(frozen=True)
class Watched:
    """What the processes of a program noted, each a list of notes in order, the processes in the
    order of their files. `exit_code` is the program's; 128 plus the signal's number where a signal
    ended it."""

    processes: tuple[tuple[Mapping[str, Any], ...], ...]
    exit_code: int
    interrupted: bool

    def values(self, name: str) -> list[Any]:
        """Return the values of this field in all notes that have it."""
        return [note[name] for notes in self.processes for note in notes if name in note]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that it compiled, each once; those of a process in its order."""
        found = (product["problem"] for product in self.values("product"))
        return tuple(dict.fromkeys(Problem.from_dict(fields) for fields in found if fields))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Descriptions of the products that Diode has no problem for."""
        products = self.values("product")
        return tuple(dict.fromkeys(each["name"] for each in products if each["problem"] is None))

    @property
    def why_nothing(self) -> str:
        """A sentence that says why nothing was noted."""
        if not self.values("python"):
            return (
                "No Python that Diode is installed in was started: run the program by this one, "
                f"{sys.executable}, and without -I, -E or -S."
            )
        if too_old := self.values("too_old"):
            return f"torch {too_old[0]} cannot be watched; Diode needs 2.10 or newer."
        if not self.values("inductor"):
            return "The program compiled nothing: it never came to use torch.compile's Inductor."
        if self.left_out:
            return f"The program compiled no product that Diode knows, but {self.left_out[0]}."
        return "The program compiled no product."


def run(command: Sequence[str]) -> Watched:
    """Runs the command to its end, as `watch` does, without Diode: a library computes each product,
    and nothing is benchmarked. An interrupt ends the program and keeps what was seen."""
    return watch(command, {"DIODE_DISABLE": "1", capture.VARIABLE: "1"})


def watch(
    command: Sequence[str], environment: Mapping[str, str], stdout: int | None = None
) -> Watched:
    """Runs the command to its end, with this process's input and output and this environment added
    to the process's own, and reads what it and its children note. `stdout` is a file descriptor for
    its output, None for this process's.

    Caches of compiled graphs are off for it: what comes from a cache is not lowered, and what is
    captured must not be used by others. Raises CollectionError where the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="diode-capture-") as folder:
        path = os.pathsep.join(filter(None, (str(AT_START), os.environ.get("PYTHONPATH"))))
        added = {
            "PYTHONPATH": path,
            FOLDER: folder,
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        with explain_os_error(CollectionError, f"{command[0]} cannot be started"):
            process = subprocess.Popen(
                list(command), env={**os.environ, **added, **environment}, stdout=stdout
            )
        interrupted = False
        try:
            code = process.wait()
        except KeyboardInterrupt:
            interrupted = True
            code = _wait_for_end(process)
        return Watched(_read(Path(folder)), 128 - code if code < 0 else code, interrupted)


def _wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Waits for the program to end, and returns its exit code. Ctrl-C has interrupted it too; where
    only this process was interrupted (by `kill`), the program is ended."""
    for end in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            return process.wait(PATIENCE_SECONDS if end == process.kill else 1.0)
        end()
    return process.wait()


def _read(folder: Path) -> tuple[tuple[Mapping[str, Any], ...], ...]:
    return tuple(
        tuple(_parse(file.read_text(errors="replace").splitlines()))
        for file in sorted(folder.glob("*.jsonl"))
    )


def _parse(lines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        with contextlib.suppress(ValueError):  # cut short by a kill
            yield json.loads(line)

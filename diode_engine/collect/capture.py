"""Runs a program and collects what its processes note: which GEMMs they compile."""

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
from diode_engine.errors import CollectionError
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
        if left_out := self.values("left_out"):
            return f"The program compiled no GEMM that Diode knows, but {left_out[0]}."
        return "The program compiled no GEMM."


@dataclass(frozen=True)
class Captured:
    """What a program compiled; `exit_code` and `interrupted` are as in Watched."""

    problems: tuple[Problem, ...]  # each once; those of a process in its order
    left_out: tuple[str, ...]  # descriptions of products that Diode has no problem for
    pythons: tuple[str, ...]  # the Python interpreters that were watched
    exit_code: int
    interrupted: bool
    why_nothing: str  # a sentence that says why there is no problem


def run(command: Sequence[str]) -> Captured:
    """Runs the command to its end, with this process's input and output, and collects the GEMMs
    that it and its children compile.

    Caches of compiled graphs are off for it: what is compiled here must not be used by others. An
    interrupt ends the program and keeps what was seen. Raises CollectionError where the command
    cannot be started.
    """
    watched = watch(command, {"DIODE_DISABLE": "1"}, capture.FOLDER)
    problems = [Problem.from_dict(fields) for fields in watched.values("problem")]
    return Captured(
        problems=tuple(dict.fromkeys(problems)),
        left_out=tuple(dict.fromkeys(watched.values("left_out"))),
        pythons=tuple(dict.fromkeys(watched.values("python"))),
        exit_code=watched.exit_code,
        interrupted=watched.interrupted,
        why_nothing=watched.why_nothing,
    )


def watch(
    command: Sequence[str],
    environment: Mapping[str, str],
    variable: str,
    stdout: int | None = None,
) -> Watched:
    """Runs the command to its end with this environment added to the process's own, and reads what
    its processes note in the folder that `variable` names. `stdout` is a file descriptor for its
    output, None for this process's.

    Caches of compiled graphs are off for it: what comes from a cache is not lowered. Raises
    CollectionError where the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="diode-capture-") as folder:
        path = os.pathsep.join(filter(None, (str(AT_START), os.environ.get("PYTHONPATH"))))
        added = {
            "PYTHONPATH": path,
            variable: folder,
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        try:
            process = subprocess.Popen(
                list(command), env={**os.environ, **added, **environment}, stdout=stdout
            )
        except OSError as error:
            raise CollectionError(
                f"{command[0]} cannot be started: {error.strerror or error}."
            ) from error
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

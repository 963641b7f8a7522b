"""Runs a program and finds out which GEMMs it compiles."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.inductor.listening import capture

AT_START = Path(capture.__file__).parent / "at_start"
PATIENCE_SECONDS = 20.0  # how long an interrupted program may take to end


@dataclass(frozen=True)
class Captured:
    """What a program compiled. `exit_code` is the program's; 128 plus the signal's number where a
    signal ended it."""

    problems: tuple[Problem, ...]  # each once; those of a process in its order
    left_out: tuple[str, ...]  # descriptions of products that Diode has no problem for
    pythons: tuple[str, ...]  # the Python interpreters that were watched
    compiled: bool  # whether Inductor was imported
    too_old: tuple[str, ...]  # versions of torch that cannot be watched
    exit_code: int
    interrupted: bool

    @property
    def why_nothing(self) -> str:
        """A sentence that says why there is no problem."""
        if not self.pythons:
            return (
                "No Python that Diode is installed in was started: run the program by this one, "
                f"{sys.executable}, and without -I, -E or -S."
            )
        if self.too_old:
            return f"torch {self.too_old[0]} cannot be watched; Diode needs 2.10 or newer."
        if not self.compiled:
            return "The program compiled nothing: it never came to use torch.compile's Inductor."
        if self.left_out:
            return f"The program compiled no GEMM that Diode knows, but {self.left_out[0]}."
        return "The program compiled no GEMM."


def run(command: Sequence[str]) -> Captured:
    """Runs the command to its end, with this process's input and output, and collects the GEMMs
    that it and its children compile.

    Caches of compiled graphs are off for it: what comes from a cache is not lowered, and what is
    compiled here must not be used by others. An interrupt ends the program and keeps what was seen.
    Raises CollectionError where the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="diode-capture-") as folder:
        path = os.pathsep.join(filter(None, (str(AT_START), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            capture.FOLDER: folder,
            "DIODE_DISABLE": "1",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        try:
            process = subprocess.Popen(list(command), env=environment)
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
        return _read(Path(folder), 128 - code if code < 0 else code, interrupted)


def _wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Waits for the program to end, and returns its exit code. Ctrl-C has interrupted it too; where
    only this process was interrupted (by `kill`), the program is ended."""
    for end in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            return process.wait(PATIENCE_SECONDS if end == process.kill else 1.0)
        end()
    return process.wait()


def _read(folder: Path, code: int, interrupted: bool) -> Captured:
    said: dict[str, list[Any]] = {
        name: [] for name in ("python", "inductor", "too_old", "problem", "left_out")
    }
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # cut short by a kill
                for name, value in json.loads(line).items():
                    said[name].append(value)
    problems = [Problem.from_dict(fields) for fields in said["problem"]]
    return Captured(
        problems=tuple(dict.fromkeys(problems)),
        left_out=tuple(dict.fromkeys(said["left_out"])),
        pythons=tuple(dict.fromkeys(said["python"])),
        compiled=bool(said["inductor"]),
        too_old=tuple(said["too_old"]),
        exit_code=code,
        interrupted=interrupted,
    )

"""Starts a job in a process of its own, which continues when the process that started it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diode_engine import paths
from diode_engine.errors import DiodeError, RunError, RunOverError
from diode_engine.location import Location, child_environment
from diode_engine.runs.following import Tail
from diode_engine.runs.job import VARIABLE, claimed_run
from diode_engine.runs.process import find_process
from diode_engine.runs.status import look, look_at_all
from diode_engine.store import Run, RunState, Store

KINDS = ("collect", "train", "validate", "tune")  # the commands that are started as runs

# The commands that a run's record may start again: those that make runs. A store is shared, so its
# records are not trusted. `capture` would start any program and `workflow` any command that a
# record names, and other commands would write or delete any file.
_AGAIN = {
    ("collect",), ("collect-shapeset",), ("collect-and-train",), ("train",), ("tune",),
    ("validate",), ("validate-model",), ("validate-max-autotune",), ("data", "import"), ("demo",),
}  # fmt: skip
_LAST_BYTES = 10_000  # of a log, in which its last words are
_GLOBAL_OPTIONS = {"-v", "-vv", "--verbose", "-q", "--quiet", "--debug"}  # before the command


def command_line(kind: str, spec: Mapping[str, Any], store: Location) -> tuple[str, ...]:
    """The words of the command that does a run of this kind. `spec` has the command's options, by
    their names without dashes: True stands for a flag, and a list for an option that is repeated;
    None and False leave the option out. Raises RunError for a kind that is not one of KINDS."""
    if kind not in KINDS:
        raise RunError(f"There is no run of kind {kind!r} to start; there are {', '.join(KINDS)}.")
    words = ["diode-engine", kind]
    for name, value in spec.items():
        option = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is True:
                words.append(option)
            elif item is not None and item is not False:
                words.append(f"{option}={item}")
    return (*words, f"--store={store.absolute()}")


def start(store: Store, kind: str, spec: Mapping[str, Any]) -> Run:
    """Starts a run with these options (see `command_line`), and returns it at once, queued.

    The command's output goes to the run's log, a file on this machine (see `paths.beside`). Where
    the command refuses the options, the run ends as failed. Raises RunError where no process can be
    started.
    """
    return _launch(store, kind, spec, command_line(kind, spec, store.location), Path.cwd())


def start_import(store: Store, files: Sequence[Path]) -> Run:
    """As `start`, for an import of dataset files: a run of kind import, and one more run for each
    file after the first."""
    words = [str(file.absolute()) for file in files]
    command = ("diode-engine", "data", "import", *words, f"--store={store.location.absolute()}")
    return _launch(store, "import", {"file": words[0]}, command, Path.cwd())


def repeat(store: Store, run: int) -> Run:
    """Starts the command of a run that has ended, in whatever state, again as a new run.

    Raises RunError where the run has not ended, or its command is not known.
    """
    earlier, command, directory = _again(store, run)
    return _launch(store, earlier.kind, earlier.spec, command, directory)


def resume(store: Store, run: int) -> Run:
    """Starts the command of a run that failed, died or was cancelled again, as a new run that names
    the old one. Collections and trainings continue where they stopped.

    Raises RunError where the run has not ended, is done, was resumed already, or its command is not
    known.
    """
    if store.run(run).state is RunState.DONE:
        raise RunOverError(f"Run {run} is done, so it cannot be resumed; start a new one.")
    earlier, command, directory = _again(store, run)
    for other in look_at_all(store):
        if other.run.resumes == run and not other.state.ended:
            raise RunError(f"Run {run} was resumed already, as run {other.run.id}.")
    return _launch(store, earlier.kind, earlier.spec, command, directory, resumes=run)


def _again(store: Store, run: int) -> tuple[Run, tuple[str, ...], Path]:
    """A run that can be started again, its command, and the folder in which to start it."""
    status = look(store, run)
    earlier = status.run
    if not status.state.ended:
        raise RunError(f"Run {run} is {status.state}; cancel it first.")
    if earlier.command is None or earlier.directory is None:
        raise RunError(f"Run {run} was not started as a command, so it cannot be started again.")
    words = [word for word in earlier.command[1:] if word not in _GLOBAL_OPTIONS]
    if not {tuple(words[:1]), tuple(words[:2])} & _AGAIN:
        raise RunError(
            f"Run {run} records {shlex.join(earlier.command)!r}, which is not a command that makes "
            "runs: it is not started."
        )
    directory = Path(earlier.directory)
    if not directory.is_dir():
        raise RunError(f"The folder {directory}, where run {run} was started, is gone.")
    return earlier, earlier.command, directory


def _launch(
    store: Store, kind: str, spec: Mapping[str, Any], command: Sequence[str], directory: Path, *,
    resumes: int | None = None,
) -> Run:  # fmt: skip
    where = store.location.absolute()
    run = store.queue_run(
        kind, spec, command=command, directory=str(directory), resumes=resumes,
        logs=paths.beside(where, "-logs").absolute(),
    )  # fmt: skip
    assert run.log is not None
    log = Path(run.log)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            child = subprocess.Popen(
                # -P: nothing is imported from the folder in which it works.
                [sys.executable, "-P", "-m", "diode_engine", *command[1:]],
                cwd=directory,
                env={**os.environ, **child_environment(where), VARIABLE: f"{run.id}:{where}"},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,  # no signal of our terminal reaches it
            )  # fmt: skip
    except OSError as error:
        sentence = f"Run {run.id} could not be started: {error}."
        store.finish_run(run.id, RunState.FAILED, sentence)
        raise RunError(sentence) from error
    store.launched_run(run.id, find_process(child.pid))
    # If this process outlives its child, it must wait for the child, or that stays a zombie.
    threading.Thread(target=child.wait, name=f"run {run.id}", daemon=True).start()
    return store.run(run.id)


def settle(code: int) -> None:
    """Ends the run that this process was started for, if nothing has begun it: the command failed
    before that, or is one that makes no run. `code` is the process's exit code."""
    claim = claimed_run()
    if claim is None:
        return
    # If even this fails, the run is shown as dead, with its log.
    with contextlib.suppress(DiodeError), Store.open(claim[1]) as store:
        run = store.run(claim[0])
        if run.state is not RunState.QUEUED:
            return
        state = {0: RunState.DONE, 130: RunState.CANCELLED}.get(code, RunState.FAILED)
        store.finish_run(run.id, state, _last_words(run.log) if code else None)


def _last_words(log: str | None) -> str | None:
    lines = [] if log is None else Tail(Path(log), last=_LAST_BYTES).read().splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), None)
    return None if said is None else said.removeprefix("Error: ")

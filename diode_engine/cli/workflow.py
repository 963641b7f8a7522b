"""diode-engine workflow: several commands, one after the other; steps are skipped where nothing
that they depend on has changed.

    store = "h200.db"              # of all steps

    [[step]]
    run = "collect --problems 300 --budget 60"

    [[step]]
    run = "train --family ensemble --default"
    output = "trained.json"

    [[step]]
    name = "report"                # default: the command's
    run = "validate --json"
    inputs = ["notes.toml"]        # files that it depends on besides what the steps before made
    output = "report.json"         # its stdout

Paths are relative to the file's folder, which is where the steps run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from diode_engine import paths
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.group import COMMANDS
from diode_engine.cli.options import READ_FILE, json_anyway_option, option
from diode_engine.documents import Limits, Malformed, read_json, read_toml, show
from diode_engine.errors import explain_os_error
from diode_engine.location import Location, child_environment, is_url, location_of

_VERSION = 1  # of the file that keeps what is done
_DONE = Limits(bytes=4 << 20)  # of that file: 100 bytes for a step, 10 for a run of the store


@dataclass(frozen=True)
class WorkflowStep:
    """A step of a workflow's file."""

    name: str
    words: tuple[str, ...]  # of the command, without "diode-engine"
    inputs: tuple[Path, ...]
    output: Path | None  # the file for its stdout


@click.command()
@click.argument("file", type=READ_FILE)
@option("--again", is_flag=True, help="Run every step, whatever was done before.")
@option("--plan", is_flag=True, help="Say which steps would run, and run none.")
@json_anyway_option
def workflow(file: Path, again: bool, plan: bool) -> int:
    """Run the steps of FILE, a TOML file, one after the other, and end at the first that fails.

    \b
        store = "h200.db"
        [[step]]
        run = "collect --problems 300 --budget 60"
        [[step]]
        run = "train --default"
        [[step]]
        name = "report"
        run = "validate --json"
        output = "report.json"

    A step is skipped if it was done before with the same words and input files (`inputs = [...]`),
    its output has not changed since, no step before it ran again, and nobody else changed the
    store's timings. For each step one JSON line goes to stdout: its name, its state (done, skipped,
    failed, or with --plan: runs), its exit code, and as result what it wrote to stdout.
    """
    folder = file.absolute().parent
    steps, store = _read(file, folder)
    for step in steps:
        if step.output is not None:
            check_output(step.output, FileKind.TEXT, sources=(file, *step.inputs))
    memory = _DoneSteps(file.absolute().with_name(f".{file.name}.done"), store)
    environment = {**os.environ, **child_environment(store), "DIODE_STORE": str(store)}
    before = ""  # the key of the step before: with another key, all steps after it run
    changed = False  # whether a step before runs, which may make the inputs of this one
    for step in steps:
        line: dict[str, Any] = {"step": step.name}
        if plan and changed:
            click.echo(json.dumps({**line, "state": "runs"}))
            continue
        key = _key(step, before)
        if not (again or changed) and memory.holds(step, key):
            line["state"] = "skipped"
        elif plan:
            line["state"], changed = "runs", True
        else:
            diagnostics.note(f"Step {step.name}: diode-engine {shlex.join(step.words)}")
            memory.forget(step)
            done = subprocess.run(
                [sys.executable, "-P", "-m", "diode_engine", *step.words],
                cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            line |= {"code": done.returncode, "result": _result(done.stdout)}
            if done.returncode != ExitCode.OK:
                click.echo(json.dumps({**line, "state": "failed"}))
                diagnostics.error(
                    f"The step {step.name} of {file} ended with exit code {done.returncode}; run "
                    "the command again to resume there."
                )
                return ExitCode.FAILURE
            if step.output is not None:
                write_output(step.output, done.stdout)
            memory.keep(step, key)
            line["state"], changed = "done", True
        click.echo(json.dumps(line))
        before = key
    return ExitCode.OK


def _read(file: Path, folder: Path) -> tuple[list[WorkflowStep], Location]:
    try:
        with explain_os_error(click.UsageError, f"{file} cannot be read"):
            document = read_toml(file)
    except Malformed as error:
        raise click.UsageError(f"{file}: {error}") from None
    if unknown := sorted(set(document) - {"store", "step"}):
        raise click.UsageError(f"{file} has {show(unknown[0])}; it may have store and [[step]].")
    given = document.get("step")
    if not isinstance(given, list) or not given:
        raise click.UsageError(f"{file} has no [[step]].")
    steps = [_step(each, f"{file}, step {i}", folder) for i, each in enumerate(given, 1)]
    names = [step.name for step in steps]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"{file} has several steps {show(twice[0])}: give each a name.")
    named = document.get("store")
    if not isinstance(named, str | None):
        raise click.UsageError(f"{file}: store must be a path or a URL.")
    if named is None:
        return steps, paths.store_location().absolute()
    return steps, location_of(named) if is_url(named) else folder / named


def _step(given: Any, place: str, folder: Path) -> WorkflowStep:
    if not isinstance(given, Mapping) or not isinstance(given.get("run"), str):
        raise click.UsageError(f"{place} needs a text, run: a command of diode-engine.")
    if unknown := sorted(set(given) - {"name", "run", "inputs", "output"}):
        raise click.UsageError(
            f"{place} has {show(unknown[0])}; it may have name, run, inputs and output."
        )
    try:
        words = shlex.split(given["run"])
    except ValueError as error:
        raise click.UsageError(f"{place}: run cannot be split into words: {error}.") from error
    words = words[1:] if words[:1] == ["diode-engine"] else words
    if not words or words[0] not in COMMANDS or words[0] == "workflow":
        raise click.UsageError(
            f"{place}: {show(' '.join(words[:1]))} is not a command that a workflow can run."
        )
    name, inputs, output = given.get("name", words[0]), given.get("inputs", []), given.get("output")
    if not isinstance(name, str) or not isinstance(output, str | None):
        raise click.UsageError(f"{place}: name and output must be texts.")
    if not isinstance(inputs, list) or not all(isinstance(path, str) for path in inputs):
        raise click.UsageError(f"{place}: inputs must be a list of paths.")
    return WorkflowStep(
        name, tuple(words), tuple(folder / path for path in inputs),
        None if output is None else folder / output,
    )  # fmt: skip


def _key(step: WorkflowStep, before: str) -> str:
    """A hash of everything that a step depends on."""
    from diode_engine.core.content_key import content_key
    from diode_engine.version import __version__

    for path in step.inputs:
        if not path.is_file():
            raise click.UsageError(f"There is no file {path}, an input of the step {step.name}.")
    fields = {
        "words": list(step.words), "inputs": [_hash(path) for path in step.inputs],
        "before": before, "diode": __version__,
    }  # fmt: skip
    return content_key("step", fields)


class _DoneSteps:
    """The file that keeps which steps are done: for each its key and the hash of its output, and
    the number of the store's timings after it."""

    def __init__(self, path: Path, store: Location) -> None:
        self._path, self._store = path, store
        self._done: dict[str, Any] = {}
        # A file that cannot be read counts as if no step was done.
        with suppress(OSError, Malformed, ValueError, TypeError, KeyError):
            kept = read_json(path, _DONE)
            if kept["version"] == _VERSION and kept["store"] == self._timings():
                self._done = dict(kept["steps"])

    def holds(self, step: WorkflowStep, key: str) -> bool:
        output = None if step.output is None else _hash(step.output)
        lost = step.output is not None and output is None
        return not lost and self._done.get(step.name) == {"key": key, "output": output}

    def forget(self, step: WorkflowStep) -> None:
        self._done.pop(step.name, None)

    def keep(self, step: WorkflowStep, key: str) -> None:
        output = None if step.output is None else _hash(step.output)
        self._done[step.name] = {"key": key, "output": output}
        document = {"version": _VERSION, "store": self._timings(), "steps": self._done}
        write_output(self._path, json.dumps(document, indent=1) + "\n")

    def _timings(self) -> list[list[int]]:
        """How many timings each run has brought. If this changes, all steps run again."""
        from diode_engine.errors import StoreError
        from diode_engine.store import Store

        try:
            with Store.open(self._store, read_only=True) as opened:
                return [[run, timings] for run, timings in opened.stats().by_run.items()]
        except StoreError:
            return []


def _hash(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _result(written: str) -> Any:
    """A step's stdout: its value where it is one JSON value, else its lines."""
    try:
        return json.loads(written) if written.strip() else None
    except ValueError:
        return written.splitlines()

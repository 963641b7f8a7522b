"""diode-engine workflow: several commands, one after the other; steps are skipped where nothing
that they depend on has changed."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from diode_engine import paths
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.group import COMMANDS, HELP_NAMES
from diode_engine.cli.options import READ_FILE, option
from diode_engine.core.checks import decode
from diode_engine.core.content_key import content_key
from diode_engine.documents import Limits, Malformed, read_json, read_toml, show
from diode_engine.errors import RecordError, StoreError, explain_os_error
from diode_engine.location import Location, child_environment, is_url, location_of
from diode_engine.store import Store
from diode_engine.version import __version__

_VERSION = 1  # of the file that keeps what is done
_DONE = Limits(bytes=4 << 20)  # of that file: 100 bytes for a step, 10 for a run of the store


@dataclass(frozen=True)
class WorkflowStep:
    """A step of a workflow's file: a command, its name (by default the command's), the files that
    it depends on besides what the steps before made, and the file for its stdout. Paths are
    relative to the file's folder, which is where the steps run."""

    run: str
    name: str = ""
    inputs: tuple[Path, ...] = ()
    output: Path | None = None

    @property
    def words(self) -> list[str]:
        """The words of the command, without "diode-engine". Raises ValueError where `run` cannot be
        split into words."""
        words = shlex.split(self.run)
        return words[1:] if words[:1] == ["diode-engine"] else words


@dataclass(frozen=True)
class WorkflowFile:
    """A workflow's file: its steps as they are given, and the store of all of them."""

    step: tuple[Any, ...] = ()
    store: str | None = None


@click.command()
@click.argument("file", type=READ_FILE)
@option("--again", is_flag=True, help="Run every step, whatever was done before.")
@option("--plan", is_flag=True, help="Say which steps would run, and run none.")
@options.json_anyway
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
        key = "" if plan and changed else _key(step, before)
        if not (again or changed) and memory.holds(step, key):
            line["state"] = "skipped"
        elif plan:
            line["state"], changed = "runs", True
        else:
            diagnostics.note(f"Step {step.name}: diode-engine {shlex.join(step.words)}")
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
    """Return the steps of the file, whose paths are absolute, and their store. Raises UsageError
    for a mistake in the file."""
    place, steps = str(file), []
    try:
        with explain_os_error(click.UsageError, f"{file} cannot be read"):
            document = read_toml(file)
        _check_names(document, WorkflowFile)
        given: WorkflowFile = decode(WorkflowFile, document)
        for number, each in enumerate(given.step, 1):
            place = f"{file}, step {number}"
            steps.append(_decode_step(each, folder))
    except (Malformed, RecordError) as error:
        raise click.UsageError(f"{place}: {str(error).rstrip('.')}.") from None
    if not steps:
        raise click.UsageError(f"{file} has no [[step]].")
    names = [step.name for step in steps]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"{file} has several steps {show(twice[0])}: give each a name.")
    if given.store is None:
        return steps, paths.store_location().absolute()
    return steps, location_of(given.store) if is_url(given.store) else folder / given.store


def _check_names(given: Mapping[str, Any], kind: type) -> None:
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(given) - set(known)):
        raise RecordError(f"it has {show(unknown[0])}; it may have {', '.join(known)}")


def _decode_step(given: Any, folder: Path) -> WorkflowStep:
    """Return the step with its name and whole paths. Raises RecordError where it is none, or runs
    no command that a workflow can run."""
    step: WorkflowStep = decode(WorkflowStep, given)
    _check_names(given, WorkflowStep)
    try:
        words = step.words
    except ValueError as error:
        raise RecordError(f"{show(step.run)} cannot be split into words: {error}") from None
    if not words or words[0] not in COMMANDS or words[0] == "workflow":
        command = show(" ".join(words[:1]))
        raise RecordError(f"{command} is not a command that a workflow can run")
    _check_options(COMMANDS[words[0]].load(words[0]), words[1:])
    return WorkflowStep(
        step.run, step.name or words[0], tuple(folder / path for path in step.inputs),
        None if step.output is None else folder / step.output,
    )  # fmt: skip


def _check_options(command: click.Command, words: Sequence[str]) -> None:
    """Raise RecordError where a command, or the subcommand that the words name, does not have an
    option. Values are checked when the step runs, since an earlier step may make what they name."""
    context = click.Context(command, help_option_names=HELP_NAMES, **command.context_settings)
    try:
        rest = command.make_parser(context).parse_args(list(words))[1]
        if isinstance(command, click.Group):
            _, found, rest = command.resolve_command(context, rest)
            if found is not None:
                _check_options(found, rest)
    except click.UsageError as error:
        raise RecordError(error.format_message()) from None


def _key(step: WorkflowStep, before: str) -> str:
    """A hash of everything that a step depends on."""
    for path in step.inputs:
        if not path.is_file():
            raise click.UsageError(f"There is no file {path}, an input of the step {step.name}.")
    depends_on = {
        "words": step.words, "inputs": [_hash(path) for path in step.inputs],
        "before": before, "diode": __version__,
    }  # fmt: skip
    return content_key("step", depends_on)


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
        return self._done.get(step.name) == self._record(step, key)

    def keep(self, step: WorkflowStep, key: str) -> None:
        self._done[step.name] = self._record(step, key)
        document = {"version": _VERSION, "store": self._timings(), "steps": self._done}
        write_output(self._path, json.dumps(document, indent=1) + "\n")

    def _record(self, step: WorkflowStep, key: str) -> dict[str, Any]:
        return {"key": key, "output": None if step.output is None else _hash(step.output)}

    def _timings(self) -> list[list[int]]:
        """How many timings each run has brought. If this changes, all steps run again."""
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

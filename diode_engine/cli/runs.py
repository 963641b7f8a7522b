"""diode-engine runs: the long jobs in the store."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from diode_engine import runs as jobs
from diode_engine.cli import diagnostics, options
from diode_engine.cli.data import open_existing
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import add_options, option
from diode_engine.cli.queries import QueryCommand, form_options, query_argument, write
from diode_engine.cli.results import Result, result_command
from diode_engine.location import Location
from diode_engine.plain_text import format_duration, format_fields, format_records
from diode_engine.runs import Status
from diode_engine.store import RunState, Store

_LAST_LINES = 10  # of the log, in `show`

# The command gets `run: int` and `store: Location`.
_of_run = add_options(
    click.argument("run", metavar="RUN", type=options.NUMBER),
    options.store,
)
_changes_run = add_options(_of_run, options.json_anyway)
_tags = click.argument("tags", metavar="TAG...", nargs=-1, required=True)


@click.group()
def runs() -> None:
    """List, follow, cancel, resume and tag collections, trainings and validations.

    RUN is a run's number, as `runs list` shows it.
    """


@runs.command("list", cls=QueryCommand)
@query_argument
@options.store
@form_options
@option(
    "--state", "states", type=click.Choice([*map(str, RunState)]), multiple=True,
    help="Only the runs in this state; may be repeated.",
)  # fmt: skip
@option("--rows", type=click.IntRange(1, 500), default=500, help="At most this many.")
@option("--before", metavar="RUN", type=options.NUMBER, help="Only runs before this one.")
def list_(
    query: str, store: Location, form: str, states: tuple[str, ...], rows: int, before: int | None
) -> None:
    """List the runs, the last one first.

    QUERY is terms that must all hold, such as: state:failed,dead kind:train tag:paper
    'problems>100' 'started>2026-11-01' -gpu:a100. The message on a mistake in it lists the fields.
    Quote < and > for the shell.
    """
    if states:
        query = f"{query} state:{','.join(states)}"
    with open_existing(store) as opened:
        found = jobs.find(opened, query, before=before, limit=rows)
    if form == "json":
        write("json", (status.to_dict() for status in found), ())
    elif form == "csv":
        write("csv", map(_cells, found), _CSV)
    elif found:
        click.echo(
            format_records([*map(_row, found)], spare=("host", "user", "tags"), cut="message")
        )
        if len(found) == rows and (last := found[-1].run.id) > 1:
            diagnostics.note(f"--before {last} shows earlier ones.")
    else:
        asked = query.strip()
        diagnostics.note(
            f"The query {asked!r} finds no run in {store}." if asked else f"{store} has no runs."
        )


_CSV = (
    "id", "kind", "state", "started", "finished", "seconds", "tags", "note", "message", "why",
    "progress", "spec", "command", "directory", "log", "host", "pid", "user", "resumes",
)  # fmt: skip


def _cells(status: Status) -> dict[str, Any]:
    cells = status.to_dict()
    for name in ("progress", "spec"):
        cells[name] = json.dumps(cells[name])
    cells["tags"] = " ".join(cells["tags"])
    cells["command"] = None if cells["command"] is None else shlex.join(cells["command"])
    return cells


def _row(status: Status) -> dict[str, str]:
    run = status.run
    progress = progress_text(run.progress) if run.progress else ""
    return {
        "run": str(run.id), "kind": run.kind, "state": str(status.state),
        "started (UTC)": f"{run.started:%Y-%m-%d %H:%M}", "for": format_duration(status.seconds),
        "user": run.user or "", "host": "" if run.process is None else run.process.host,
        "tags": " ".join(run.tags), "message": status.why or run.message or progress,
    }  # fmt: skip


@runs.command()
@_of_run
@result_command
def show(run: int, store: Location) -> Result:
    """Show all that is known of a run: how far it is, its command, its process and its log."""
    with open_existing(store) as opened:
        status = jobs.look(opened, run)
    r = status.run
    lines = {
        "run": f"{r.id}, {r.kind}",
        "state": str(status.state),
        "why": status.why,
        "message": r.message,
        "tags": " ".join(r.tags),
        "note": r.note,
        "progress": progress_text(r.progress) if r.progress else None,
        "started": f"{r.started:%Y-%m-%d %H:%M:%S} UTC",
        "started by": r.user,
        "for": format_duration(status.seconds),
        "last heard of": f"{format_duration(status.quiet_seconds)} ago"
        if r.finished is None
        else None,
        "continues": None if r.resumes is None else f"run {r.resumes}",
        "process": None if r.process is None else f"{r.process.pid} on {r.process.host}",
        "command": None if r.command is None else shlex.join(r.command),
        "in": r.directory,
        "asked for": ", ".join(f"{k} {v}" for k, v in r.spec.items() if v is not None),
        "log": r.log,
    }
    text = format_fields(lines.items())
    if r.log is not None and (last := _last_lines(Path(r.log))):
        text = "\n".join([text, "", *last])
    return Result(status.to_dict(), text)


def _last_lines(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    except OSError:
        return []


@runs.command()
@_of_run
@options.as_json
def follow(run: int, store: Location, as_json: bool) -> int:
    """Follow a run until it ends: its log goes to stdout, its progress to stderr. With --json, a
    line as `runs show --json` writes it goes to stdout each time that something changes. Ctrl-C
    ends this command, not the run. The exit code is 0 if the run is done."""
    said, known = None, None
    with open_existing(store) as opened:
        for tick in jobs.follow(opened, run):
            status = tick.status
            progress = status.run.progress
            if as_json:
                if (status.state, progress) != known:
                    known = (status.state, progress)
                    click.echo(json.dumps(status.to_dict()))
                continue
            click.echo(tick.log, nl=False)
            if progress and (text := progress_text(progress)) != said:
                said = text
                diagnostics.note(f"{status.run.kind}: {text}")
    _say(status)
    return ExitCode.OK if status.state == "done" else ExitCode.FAILURE


@runs.command()
@_of_run
@result_command
def cancel(run: int, store: Location) -> Result:
    """Stop a run. It is asked to stop. If it has not stopped after ten seconds, it is terminated,
    and if that does not end it, killed. What it has written to the store stays."""
    with open_existing(store) as opened:
        status = jobs.cancel(opened, run, tell=diagnostics.note)
    _say(status)
    if status.state.ended:
        return Result(status.to_dict(), "")
    diagnostics.warn(
        f"Run {run} was asked to stop and has not stopped yet; it cannot be reached from here."
    )
    return Result(status.to_dict(), "", ExitCode.FAILURE)


@runs.command()
@_of_run
@result_command
def resume(run: int, store: Location) -> Result:
    """Start again a run that failed, died or was cancelled, in a process of its own. It continues
    where it was: see docs/runs.md. The number of the new run goes to stdout."""
    with open_existing(store) as opened:
        started = jobs.resume(opened, run)
    diagnostics.note(
        f"Run {started.id} continues run {run}; `diode-engine runs follow {started.id}` shows "
        "how far it is."
    )
    return Result({"run": started.id, "resumes": run}, str(started.id))


@runs.command()
@_changes_run
@_tags
def tag(run: int, tags: tuple[str, ...], store: Location) -> None:
    """Tag a run, so that `runs list tag:TAG` finds it."""
    _change(store, run, lambda opened: opened.tag(run, *tags))


@runs.command()
@_changes_run
@_tags
def untag(run: int, tags: tuple[str, ...], store: Location) -> None:
    """Remove tags from a run."""
    _change(store, run, lambda opened: opened.untag(run, *tags))


@runs.command()
@_changes_run
@click.argument("text")
def note(run: int, text: str, store: Location) -> None:
    """Write a note on a run in place of the earlier one; an empty one removes it."""
    _change(store, run, lambda opened: opened.set_note(run, text))


def _change(store: Location, run: int, change: Callable[[Store], None]) -> None:
    """Changes the tags or the note of a run, and prints the new ones."""
    with open_existing(store) as opened:
        change(opened)
        changed = opened.run(run)
    click.echo(json.dumps({"id": run, "tags": list(changed.tags), "note": changed.note}))


def progress_text(progress: Mapping[str, Any]) -> str:
    """A run's progress in one line: its numbers and texts, and its counts by name."""
    parts = []
    for name, value in progress.items():
        if name == "machine":
            continue
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            value = " ".join(f"{key} {n}" for key, n in value.items() if isinstance(n, int | float))
            if not value:
                continue
        if isinstance(value, float):
            value = f"{value:.4g}"
        if isinstance(value, int | str):
            parts.append(f"{label} {value}")
    return ", ".join(parts)


def _say(status: Status) -> None:
    why = status.why or status.run.message
    diagnostics.note(f"Run {status.run.id} is {status.state}" + (f": {why}" if why else "."))

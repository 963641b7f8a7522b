"""The result of a command, which goes to stdout as text, or with --json as JSON; it may be recorded
as a run of the store."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode

if TYPE_CHECKING:
    from diode_engine.store import Store


_TELL_SECONDS = 1.0  # between two writes of how far a run is


@dataclass(frozen=True)
class Result:
    """What a command has found: `document` for --json, `text` for a person, and its exit code."""

    document: Any
    text: str
    code: ExitCode = ExitCode.OK


def result_command(command: Callable[..., Result | ExitCode]) -> Callable[..., ExitCode]:
    """Adds --json to a command that returns a Result, and prints the result. Where it returns an
    exit code alone, nothing is printed."""

    @functools.wraps(command)
    def printed(*args: Any, as_json: bool, **values: Any) -> ExitCode:
        result = command(*args, **values)
        if isinstance(result, ExitCode):
            return result
        text = json.dumps(result.document, allow_nan=False) if as_json else result.text
        if text:
            click.echo(text, nl=not text.endswith("\n"))
        return result.code

    return options.as_json(printed)


class _Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Result)


def record_as_run(
    store: Store,
    kind: str,
    spec: Mapping[str, object],
    work: Callable[[Callable[[], None], Callable[[Mapping[str, Any]], None]], R],
    summary: Callable[[R], tuple[Mapping[str, Any], str]],
) -> R:
    """The result of the work, recorded in a run of this kind that says how the work ended.

    `work` gets two functions: one raises KeyboardInterrupt where somebody has asked the run to
    stop, the other writes how far it is. `summary` gives the progress that a list of runs shows,
    and a sentence.
    """
    from diode_engine.runs import Job

    if store.read_only:
        diagnostics.warn(f"{store.location} cannot be written, so this is not recorded as a run.")
        return work(lambda: None, lambda _: None)
    with Job(store, kind, spec) as job:
        result = work(job.check, functools.partial(job.tell, every=_TELL_SECONDS))
        store.set_result(job.id, result.to_dict())
        figures, job.message = summary(result)
        job.tell(figures)
        return result

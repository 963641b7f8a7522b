"""The result of a command, which goes to stdout as text, or with --json as JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import as_json_option


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
    def printed(*args: Any, as_json: bool, **options: Any) -> ExitCode:
        result = command(*args, **options)
        if isinstance(result, ExitCode):
            return result
        text = json.dumps(result.document, allow_nan=False) if as_json else result.text
        click.echo(text, nl=not text.endswith("\n"))
        return result.code

    return as_json_option(printed)

"""What people read while a command runs: this module owns stderr.

A command says what it does with `note`, warns with `warn`, and shows a long job with `progress`. It
raises errors and never prints them. All of it goes through one rich console, so that messages and
log records scroll above a progress bar and not through it.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from diode_engine import paths
from diode_engine.location import without_passwords
from diode_engine.version import __version__

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LOGGER = logging.getLogger("diode_engine")


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1  # it could not do its work
    USAGE = 2  # it was called wrongly
    NOTHING = 3  # there is nothing to do, or what was named does not exist
    INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class _ConsoleHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _print(self.format(record))


def configure(verbosity: int = 0) -> None:
    """Sets how much is said: -1 errors only, 0 notes and warnings, 1 also the log's INFO, 2 and
    more also its DEBUG."""
    levels = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
    LOGGER.setLevel(levels.get(max(verbosity, -1), logging.DEBUG))
    if not any(isinstance(handler, _ConsoleHandler) for handler in LOGGER.handlers):
        handler = _ConsoleHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        LOGGER.addHandler(handler)


def _quiet() -> bool:
    return LOGGER.level >= logging.ERROR


@cache
def console() -> Console:
    """The console on stderr."""
    from rich.console import Console

    return Console(stderr=True)


def _print(message: str) -> None:
    console().print(message, markup=False, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Says what is being done; silent under --quiet."""
    if not _quiet():
        _print(message)


def warn(message: str) -> None:
    """Warns of something unexpected; silent under --quiet."""
    if not _quiet():
        _print(f"Warning: {message}")


def error(message: str) -> None:
    """Says why a command failed. Commands raise errors; only `main` calls this."""
    _print(f"Error: {message}")


def progress() -> Progress:
    """A progress display on stderr, with the elapsed and the remaining time; a line every half a
    minute where stderr is no terminal; hidden under --quiet."""
    if not _quiet() and not console().is_terminal:
        from diode_engine.cli.plain_progress import PlainProgress

        return PlainProgress(note)
    from rich import progress as bars

    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=console(),
        disable=_quiet(),
    )


def crash(exc: Exception, arguments: list[str], *, debug: bool) -> None:
    """Reports an unexpected error: a sentence on stderr and the traceback in the log file. With
    `debug`, or where that file cannot be written, the traceback goes to stderr too."""
    details = without_passwords("".join(traceback.format_exception(exc)))
    said = without_passwords(str(exc))
    summary = f"{type(exc).__name__}: {said}" if said else type(exc).__name__
    log = paths.data_dir() / "errors.log"
    if not debug and _append(log, arguments, details):
        error(
            f"Diode met an error that it did not expect ({summary}). The details are in {log}; "
            "--debug shows them here."
        )
        return
    _print(details.rstrip())
    error(f"Diode met an error that it did not expect ({summary}).")


def _append(log: Path, arguments: list[str], details: str) -> bool:
    head = (
        f"{datetime.now(UTC).isoformat(timespec='seconds')} Diode {__version__}, "
        f"Python {sys.version.split()[0]} on {sys.platform}: "
        f"{[without_passwords(word) for word in arguments]}"
    )
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{head}\n{details}\n")
    except OSError:
        return False
    return True

"""Files that a command writes where the user has said."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from diode_engine.atomic import FileKind, check_writable, write_whole
from diode_engine.errors import explain_os_error


def check_output(path: Path, kind: FileKind, *, sources: Iterable[Path] = ()) -> None:
    """Checks, before any work is done, that the command may write a file of this kind to `path`.
    `sources` are the files that it reads. Raises ClickException where it may not."""
    with explain_os_error(click.ClickException, f"{path} cannot be written"):
        check_writable(path, kind, sources=sources)


def write_output(path: Path, text: str, *, kept: str = "") -> None:
    """Writes the text whole or not at all. Raises ClickException where it cannot be written; `kept`
    is a sentence for the message that says where else the text is."""
    with explain_os_error(lambda why: click.ClickException(f"{why} {kept}".rstrip()),
                          f"{path} cannot be written"):  # fmt: skip
        write_whole(path, text, kind=FileKind.TEXT)

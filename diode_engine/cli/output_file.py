"""Files that a command writes where the user has said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from diode_engine.atomic import FileKind, check_writable, write_whole


def check_output(path: Path, kind: FileKind, *, sources: Iterable[Path] = ()) -> None:
    """Checks, before any work is done, that the command may write a file of this kind to `path`.
    `sources` are the files that it reads. Raises ClickException where it may not."""
    with _sentence(path):
        check_writable(path, kind, sources=sources)


def write_output(path: Path, text: str, *, kept: str = "") -> None:
    """Writes the text whole or not at all. Raises ClickException where it cannot be written; `kept`
    is a sentence for the message that says where else the text is."""
    with _sentence(path, kept):
        write_whole(path, text, kind=FileKind.TEXT)


@contextmanager
def _sentence(path: Path, kept: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentences = f"{path} cannot be written: {error.strerror or error}.", kept
        raise click.ClickException(" ".join(filter(None, sentences))) from error

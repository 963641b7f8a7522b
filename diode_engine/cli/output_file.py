"""Files that a command writes where the user has said."""

from __future__ import annotations

from pathlib import Path

import click

from diode_engine.atomic import write_whole


def write_output(path: Path, text: str, *, kept: str = "") -> None:
    """Writes the file whole or not at all. Raises ClickException where it cannot be written; `kept`
    is a sentence for the message that says where else the text is."""
    try:
        write_whole(path, text)
    except OSError as error:
        sentences = f"{path} cannot be written: {error.strerror or error}.", kept
        raise click.ClickException(" ".join(filter(None, sentences))) from error

"""Files that a command writes where the user has said, and the datasets in a folder of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from diode_engine.atomic import FileKind, check_writable, write_whole
from diode_engine.cli import diagnostics
from diode_engine.errors import DatasetError, NoSuchDatasetError, explain_os_error


def check_output(path: Path, kind: FileKind, *, sources: Iterable[Path] = ()) -> None:
    """Checks, before any work is done, that the command may write a file of this kind to `path`.
    `sources` are the files that it reads. Raises ClickException where it may not."""
    with explain_os_error(click.ClickException, f"{path} cannot be written"):
        check_writable(path, kind, sources=sources)


def write_output(path: Path, text: str, *, kept: str = "", kind: FileKind = FileKind.TEXT) -> None:
    """Writes the text whole or not at all. Raises ClickException where it cannot be written; `kept`
    is a sentence for the message that says where else the text is."""
    with explain_os_error(lambda why: click.ClickException(f"{why} {kept}".rstrip()),
                          f"{path} cannot be written"):  # fmt: skip
        write_whole(path, text, kind=kind)


def datasets_in(folder: Path, extensions: Sequence[str] = ()) -> tuple[Path, ...]:
    """The datasets in the folder and below it, of all suffixes or only of these (such as "json",
    which stands for .json.zst too). Other files of these suffixes are skipped, with a message that
    says why. Raises UsageError where no dataset has such a suffix, NoSuchDatasetError where there
    is none."""
    from diode_engine.store import read_dataset

    endings = _suffixes(extensions)
    found = []
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or not path.name.endswith(endings) or not path.is_file():
            continue
        try:
            read_dataset(path)
        except DatasetError as error:
            diagnostics.note(f"Skipped: {error}")
        else:
            found.append(path)
    if not found:
        raise NoSuchDatasetError(
            f"No file in {folder} is a dataset that ends in {', '.join(endings)}."
        )
    return tuple(found)


def _suffixes(extensions: Sequence[str]) -> tuple[str, ...]:
    from diode_engine.store.datasets.format import SUFFIXES

    chosen: list[str] = []
    for name in extensions:
        ending = f".{name.lstrip('.')}"
        meant = [suffix for suffix in SUFFIXES if suffix in (ending, f"{ending}.zst")]
        if not meant:
            raise click.UsageError(
                f"No dataset ends in {ending}; --file-extensions has some of {', '.join(SUFFIXES)}."
            )
        chosen += meant
    return tuple(chosen) or SUFFIXES

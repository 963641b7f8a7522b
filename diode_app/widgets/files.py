"""Files that a person names: their paths, completed and checked, and what is written to them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from textual.app import App
from textual.widget import Widget

from diode_app.data.background import in_thread
from diode_app.session import Session
from diode_app.widgets.modals import Confirm, ErrorDialog, Prompt
from diode_engine.atomic import FileKind, write_whole
from diode_engine.errors import DiodeError

_MAX_ENTRIES = 2000  # entries of a folder that are looked at


def complete_path(given: str, cursor: int) -> list[str]:
    """Return the lines that `given` can be completed to: the path at its end by one name. A
    folder's name ends in a slash. A line may have several paths with spaces between."""
    before, blank, path = given[:cursor].rpartition(" ")
    folder, _, start = path.rpartition("/")
    if not path:
        return []
    where = Path(f"{folder}/" if "/" in path else ".").expanduser()
    try:
        with os.scandir(where) as entries:
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _MAX_ENTRIES)
                if entry.name.startswith(start)
                and " " not in entry.name
                and (start.startswith(".") or not entry.name.startswith("."))
            )
    except (OSError, RuntimeError):  # no such folder, or no such user's home
        return []
    kept = f"{folder}/" if "/" in path else ""
    return [f"{before}{blank}{kept}{name}" for name in names]


def existing_file(given: str) -> str | None:
    """Return a check: the path of an existing file."""
    path = Path(given).expanduser()
    if path.is_dir():
        return f"{path} is a folder; give a file in it."
    return None if path.is_file() else f"There is no file {path}."


async def ask_target(
    app: App[Any], question: str, name: str, suffixes: Sequence[str] = ()
) -> Path | None:
    """Ask for a file to write, and proposes this name in the current directory. The given name must
    end in one of the suffixes, if there are any. None where the person leaves, or does not want an
    existing file replaced."""
    given = await app.push_screen_wait(
        Prompt(
            question,
            str(Path.cwd() / name),
            check=lambda text: check_target(text, suffixes),
            suggest=complete_path,
        )
    )
    if given is None:
        return None
    target = Path(given).expanduser()
    if target.exists() and not await app.push_screen_wait(
        Confirm(f"{target} exists already. Replace it?", yes="Replace it")
    ):
        return None
    return target


async def save_as(
    widget: Widget,
    question: str,
    name: str,
    suffixes: Sequence[str],
    make_text: Callable[[Path], Awaitable[str]],
) -> Path | None:
    """Ask for a file (see `ask_target`), and write the text that `make_text` returns for it. Return
    the file, or None where nothing was written, as with --read-only."""
    app = widget.app
    session = getattr(app, "session", None)
    try:
        if isinstance(session, Session):
            session.store.must_be_writable()
    except DiodeError as error:
        await app.push_screen_wait(ErrorDialog(str(error)))
        return None
    target = await ask_target(app, question, name, suffixes)
    if target is None:
        return None
    try:
        content = await make_text(target)
        kind = FileKind.FIGURE if target.suffix == ".svg" else FileKind.TEXT
        await in_thread(lambda: write_whole(target, content, kind=kind), "export")
    except (DiodeError, OSError) as error:
        await app.push_screen_wait(ErrorDialog(f"{target} was not written: {error}"))
        return None
    return target


def check_target(given: str, suffixes: Sequence[str]) -> str | None:
    """Return a sentence on why a file cannot be written there; None where it can."""
    path = Path(given).expanduser()
    if suffixes and not path.name.endswith(tuple(suffixes)):
        names = " or ".join([", ".join(suffixes[:-1]), suffixes[-1]] if suffixes[1:] else suffixes)
        return f"The name must end in {names}."
    if path.is_dir() or not path.name:
        return "Give the name of a file."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    return None

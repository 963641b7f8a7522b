"""Writes what is on the screen to a file that the person names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.widget import Widget

from diode_app.data.threads import in_thread
from diode_app.session import Session
from diode_app.widgets.modals import Confirm, ErrorDialog, Prompt
from diode_app.widgets.path_completion import complete_path
from diode_engine.atomic import write_whole
from diode_engine.errors import DiodeError


async def save_as(
    widget: Widget,
    question: str,
    name: str,
    suffixes: Sequence[str],
    made: Callable[[Path], str],
) -> None:
    """Asks for the file (it suggests `name` in the current directory) and writes what `made`
    returns for it; its name must end in one of the suffixes. An existing file is replaced only when
    the person agrees; with --read-only nothing is written."""
    app = widget.app
    session = getattr(app, "session", None)
    try:
        if isinstance(session, Session):
            session.store.must_be_writable()
    except DiodeError as error:
        await app.push_screen_wait(ErrorDialog(str(error)))
        return
    given = await app.push_screen_wait(
        Prompt(
            f"{question} to ({' or '.join(suffixes)})",
            str(Path.cwd() / name),
            check=lambda text: check_target(text, suffixes),
            suggest=complete_path,
        )
    )
    if given is None:
        return
    target = Path(given).expanduser()
    if target.exists() and not await app.push_screen_wait(
        Confirm(f"{target} exists already. Replace it?", yes="Replace it")
    ):
        return
    try:
        await in_thread(lambda: write_whole(target, made(target)), "export")
    except (DiodeError, OSError) as error:
        await app.push_screen_wait(ErrorDialog(f"{target} was not written: {error}"))
        return
    widget.notify(f"It is in {target}.", markup=False)


def check_target(given: str, suffixes: Sequence[str]) -> str | None:
    """A sentence on why a file cannot be written there; None where it can."""
    path = Path(given).expanduser()
    if path.suffix not in suffixes:
        return f"The name must end in {' or '.join(suffixes)}."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    return None

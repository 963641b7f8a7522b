"""What a person writes on a run or a model: tags, a note, aliases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from diode_app.screens.base import DiodeScreen
from diode_app.widgets.modals import Prompt
from diode_app.widgets.work import acts


class Labels(DiodeScreen):
    """A mixin for a screen with something that has labels."""

    @acts(writes=True)
    async def edit_label(
        self,
        label: str,
        of: str,
        read: Callable[[], Awaitable[str]],
        write: Callable[[str], Awaitable[object]],
        *,
        hint: str = "",
        check: Callable[[str], str | None] = lambda _: None,
    ) -> str | None:
        """Ask for a new text of a label, such as the tags of run 3, and write it; this can be
        undone. `check` returns a sentence for a text that cannot be written."""

        def sentence(now: str) -> str:
            return f"The {label} of {of}: {now or '(none)'}."

        before = await read()
        prompt = Prompt(f"The {label} of {of}{hint}", before, check=check, take=write)
        given = await self.app.push_screen_wait(prompt)
        if given is None:
            return None

        async def undo() -> str:
            await write(before)
            return sentence(before)

        self.session.undo.append(undo)
        return sentence(given)

    def edit_words(
        self,
        label: str,
        of: str,
        read: Callable[[], Awaitable[tuple[str, ...]]],
        write: Callable[[tuple[str, ...]], Awaitable[object]],
        *,
        check: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """As `edit_label`, for several words in a label, such as tags."""

        async def read_text() -> str:
            return " ".join(await read())

        async def write_text(given: str) -> object:
            return await write(tuple(dict.fromkeys(given.split())))

        self.edit_label(label, of, read_text, write_text, hint=", with spaces between", check=check)

"""What a person writes on a run or a model: tags, a note, aliases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from diode_app.screens.base import DiodeScreen
from diode_app.widgets.modals import Prompt
from diode_app.widgets.work import acts

WORDS = ", with spaces between"


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
        undone. `hint` says how it is written; `check` returns a sentence for a text that cannot be
        a label."""

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

"""Actions that are done in a worker, because they ask the person something or take a while."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from textual import work

from diode_app.keys import ASKING
from diode_app.widgets.modals import ErrorDialog
from diode_engine.errors import DiodeError

Doing = Callable[..., Coroutine[Any, Any, str | None]]


def acts(*, asks: bool = True, writes: bool = False) -> Callable[[Doing], Callable[..., object]]:
    """Decorate a method of a screen or the app, which has a `session`. It is done in a worker; then
    the sentence that it returns is shown, or a DiodeError as a problem, and `reload` is called.
    Where it `asks` the person something, the next key waits for the question. Where it `writes`,
    it is refused with --read-only."""

    def decorate(method: Doing) -> Callable[..., object]:
        @work(group=ASKING if asks else "working", exit_on_error=False)
        @wraps(method)
        async def act(self: Any, *given: Any, **named: Any) -> None:
            try:
                if writes:
                    self.session.store.must_be_writable()
                sentence = await method(self, *given, **named)
            except DiodeError as error:
                await self.app.push_screen_wait(ErrorDialog(str(error)))
            else:
                if sentence:
                    self.app.notify(sentence, markup=False)
            self.reload()

        return act

    return decorate

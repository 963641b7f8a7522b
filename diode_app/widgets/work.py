"""What is done in workers: actions that ask the person something or take a while, and answers for
one place on the screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Generic, TypeVar

from textual import work
from textual.widget import Widget

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


T = TypeVar("T")


class Latest(Generic[T]):
    """`do` awaits an answer and gives it to `show`, or a sentence to `fail`. While one answer is in
    progress (`busy`), further questions wait, and only the last of them is asked. So what changes
    all the time is shown as fast as it can be answered. The answer in progress is dropped where
    another question waits, but not where the same one waits, to be asked `again`."""

    def __init__(
        self, node: Widget, show: Callable[[T], None], fail: Callable[[str], None]
    ) -> None:
        self._node = node
        self._show = show
        self._fail = fail
        self.busy = False
        self._next: Callable[[], Awaitable[T]] | None = None
        self._drops = False  # the answer in progress

    def do(self, asking: Callable[[], Awaitable[T]], *, again: bool = False) -> None:
        self._next = asking
        self._drops = self._drops or not again
        if not self.busy:
            self.busy = True
            self._node.run_worker(self._go(), group="reading", exit_on_error=False)

    def drop(self) -> None:
        """Show no answer to what was asked so far."""
        self._next, self._drops = None, True

    async def _go(self) -> None:
        try:
            while (asking := self._next) is not None:
                self._next, self._drops = None, False
                try:
                    result = await asking()
                except DiodeError as error:
                    answer = partial(self._fail, str(error))
                except Exception as error:  # noqa: BLE001  # it must not end the dashboard
                    said = f"This could not be read ({error!r}); please report it."
                    answer = partial(self._fail, said)
                else:
                    answer = partial(self._shown, result)
                if not self._drops and self._node.is_mounted:
                    answer()
        finally:
            self.busy = False

    def _shown(self, result: T) -> None:
        try:
            self._show(result)
        except Exception as error:  # noqa: BLE001  # half of it may be on the screen
            self._fail(f"This could not be shown ({error!r}); please report it.")

"""What every screen has: the bar above, the keys below, the store's state, and actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Button, Input, Select, Static, TextArea

from diode_app.actions import Actions, fill_in
from diode_app.data.store_access import Condition, Look
from diode_app.screens.places import ASIDE, PLACES
from diode_app.session import Session
from diode_app.widgets.bars import KeyBar, TopBar
from diode_app.widgets.choices import Choices
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.modals import Confirm, Working
from diode_app.widgets.styling import SeldomDrawn, set_text
from diode_app.widgets.work import Latest

if TYPE_CHECKING:
    from diode_engine.store import Store


T = TypeVar("T")
# What `reader` returns: it reads the store, or None where the store cannot be read.
Reader = Callable[["Store"], T]
ReaderIfReady = Callable[["Store | None"], T]


class DiodeScreen(Actions, SeldomDrawn[None]):
    """A screen over the store.

    The bar and the keys are shown first, and the body when it is made, so that a key is answered at
    once; keys that come before wait for it (see `diode_app.keys`). A subclass composes `body`. Its
    `reader` returns a function that reads a frozen snapshot (in a thread), and its `show` paints
    the snapshot; both are called again whenever the store has changed. `MODE` is that of its place.
    With `NEEDS_STORE` the body is replaced by advice while there is no store that can be read.
    """

    # An Escape among a screen's own actions takes its place.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]
    MODE: ClassVar[str] = ""
    NEEDS_STORE: ClassVar[bool] = True
    HELP_TITLE: ClassVar[str] = ""
    # As classes: -wide where two parts have room side by side, -high where they have it above each
    # other.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  # as Textual types it
    VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-high")]  # noqa: RUF012  # as Textual types it
    LINK: ClassVar[str] = ""  # of a page: the key in `values` of the name that links to it have
    HEADLESS: ClassVar[tuple[tuple[str, str], ...]] = ()  # (label, command) beside the actions'

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.reading: Latest[Any] = Latest(self, self.show, self.fail)
        self.has_body = False
        self.is_made = False  # the body is there and its first reading has begun: keys may come
        self.is_readable = True  # False while there is advice in the place of the body
        self._seen: Look | None = None
        self.styled_in = ""  # the theme in which it was styled last
        self._given: Any = None  # what the screen takes when it has its body

    # What a screen gives

    def body(self) -> ComposeResult:
        """The widgets between the bar and the keys."""
        yield from ()

    def body_mounted(self) -> None:
        """Called when the widgets of the body are mounted. Then the first table gets the focus, or
        else the first widget, unless one has it already."""

    def reader(self) -> Callable[[Any], Any] | None:
        """Return the function that reads the store, None where there is nothing to read (now). The
        function of a screen that does not need the store gets None where it cannot be read."""
        return None

    def show(self, snapshot: Any) -> None:
        """Paint the snapshot."""

    def look_changed(self, look: Look) -> None:
        """The store, or a live run, has changed. Reads again."""
        self.reload()

    def store_looked(self) -> None:
        """The app has read the store's state, which may not have changed, or has come back to this
        screen. The body is mounted."""

    def take(self, given: Any) -> None:
        """Show what another screen, or a link, has asked this place for. The body is mounted."""

    def values(self) -> Mapping[str, object]:
        """Return what is chosen on the screen, by the names in headless commands."""
        return {}

    @property
    def query_text(self) -> str:
        """The query that decides what the screen lists; empty where there is none."""
        return ""

    # What a screen can use

    def give(self, given: Any) -> None:
        """Let the screen `take` this, at once or when its body is mounted."""
        if self.has_body:
            self.take(given)
        else:
            self._given = given

    def reload(self) -> None:
        if (work := self.reader()) is not None:
            store = self.session.store
            read = store.read if self.NEEDS_STORE else store.read_if_ready
            self.reading.do(partial(read, work), again=True)

    def put(self, where: str | Static, content: str | Content) -> None:
        """Set the text of a Static, or of the one with this selector."""
        set_text(where if isinstance(where, Static) else self.query_one(where, Static), content)

    def show_empty(self, is_empty: bool, *parts: str) -> None:
        """Show the advice of the screen (the EmptyState that its body has) in place of these parts,
        or the other way round; what is shown takes the focus."""
        advice = self.query_one("#body EmptyState")
        if advice.display is is_empty:
            return
        advice.display = is_empty
        for part in parts:
            self.query_one(part).display = not is_empty
        if is_empty:
            if buttons := advice.query(Button):  # none where the dashboard is read-only
                buttons.first().focus()
        else:
            self.query("#body PageGrid").first().focus()

    def fail(self, sentence: str) -> None:
        """Show that a read failed."""
        self.notify(sentence, severity="error", markup=False)

    async def confirm(self, question: str, yes: str) -> bool:
        """For an action that `acts`: asks before something that cannot be undone."""
        return await self.app.push_screen_wait(Confirm(question, yes=yes))

    def show_waiting(self) -> None:
        """Show whether something waits to be written."""
        for bar in self.query(TopBar):
            bar.show(self.session.store.last)

    async def wait_for(self, work: Awaitable[T], what: str) -> T:
        """For an action that `acts`: return the result of some seconds of work, with a dialog that
        names the work."""
        working = Working(what)
        await self.app.push_screen(working)
        try:
            return await work
        finally:
            if self.app.screen is working:
                await working.dismiss()

    async def start_run(self, command: str, spec: Mapping[str, Any]) -> int:
        """For an action that `acts`: start the command with these options as a run, and return the
        run's number."""

        def start(store: Store) -> int:
            from diode_engine.runs import start

            return start(store, command, spec).id

        return await self.session.store.write(start)

    @property
    def dashboard(self) -> Any:
        """The DiodeApp, whose module imports this one."""
        return self.app

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return self.MODE in ASIDE or self._is_in_field()
        return super().check_action(action, parameters)

    def _is_in_field(self) -> bool:
        return isinstance(self.focused, Input | Select | Choices | TextArea)

    def action_leave(self) -> None:
        """Escape: leaves a field, so that letters are the screen's keys again; else leaves a place
        that was only visited."""
        if self._is_in_field():
            self.set_focus(None)
        else:
            self.dashboard.action_leave_aside()

    def action_back(self) -> None:
        """Close a page."""
        self.dismiss()

    def headless_commands(self) -> list[tuple[str, str]]:
        """(what it does, command) for the actions that have a headless command and can be done
        now."""
        values, found = self.values(), list(self.HEADLESS)
        for action in self.ACTIONS:
            can = bool(action.does) or self.check_action(action.name, ()) is not False
            if action.headless is not None and can:
                found.append((action.label, action.headless))
        return [(label, fill_in(c, self.session.location, values)) for label, c in found]

    # Frame

    def compose(self) -> ComposeResult:
        self._take_size()
        places = [(p.mode, p.key, p.label) for p in PLACES if p.label is not None]
        yield TopBar(self.session, places, self.MODE)
        yield EmptyState("", "", id="trouble")
        yield KeyBar()

    def _take_size(self) -> None:
        if getattr(self.app, "is_plain", False):  # one part below the other, on any screen
            self.HORIZONTAL_BREAKPOINTS = self.HORIZONTAL_BREAKPOINTS[:1]
            self.add_class("-plain")
        # Set the classes of the breakpoints before there is a widget in the screen. Textual does so
        # when all are made, and styles each of them again.
        across, down = self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS
        for room, breakpoints in ((self.app.size.width, across), (self.app.size.height, down)):
            self.add_class(max((least, name) for least, name in breakpoints if least <= room)[1])

    def on_mount(self) -> None:
        self.styled_in = self.app.theme
        shown = asyncio.Event()
        # Through the app's queue, since the app paints nothing before it has started.
        self.app.call_later(self.call_after_refresh, shown.set)
        self.run_worker(self._mount_body(shown), description="makes a screen")

    async def _mount_body(self, shown: asyncio.Event) -> None:
        await shown.wait()
        async with self.batch():
            await self.mount(_Body(self.body), after=self.query_one(TopBar))
            await asyncio.sleep(0)  # lets the event loop handle what came during the long step
            self.has_body = True
            self.body_mounted()
            if self._given is not None:
                self.take(self._given)
            if self.focused is None:
                self._focus_table()
            if self.focused is None:
                self.focus_next()
            await asyncio.sleep(0)
            await self._resumed()
        self.is_made = True
        if not self.is_shown:  # made ahead: its layout takes half of the time of a first visit
            self.post_message(events.Resize(self.app.size, self.app.size))

    def _focus_table(self) -> None:
        tables: Any = self.query("#body PagedTable")
        if tables:
            tables.first().focus_rows()

    async def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Textual would style every widget again, and make each table's cells anew. That is needed
        # only where the theme has changed while the screen was not visible.
        event.refresh_styles = self.styled_in != self.app.theme
        self.styled_in = self.app.theme
        await self._resumed()

    async def _resumed(self) -> None:
        if not self.is_shown:
            return  # made ahead, or left already: it reads when it is shown
        look = self.session.store.last
        if look == self._seen or (self._seen is None and look.condition is Condition.OPENING):
            self.query_one(TopBar).show(look)
        else:
            await self._apply_look(look)
        if self.has_body:
            if not self.NEEDS_STORE:
                self.reload()
            self.store_looked()

    def on_resize(self) -> None:
        self.query_one(TopBar).show(self.session.store.last)

    async def take_look(self, look: Look) -> None:
        """Called by the app, when it has read the store's state, of the screen that is shown."""
        if look != self._seen:
            await self._apply_look(look)
        if self.has_body:
            self.store_looked()

    async def _apply_look(self, look: Look) -> None:
        before, self._seen = self._seen, look if self.has_body else None
        self.query_one(TopBar).show(look)
        trouble = self.NEEDS_STORE and not look.ready
        if trouble and look.condition is Condition.LOCKED and before is not None and before.ready:
            trouble = False  # a lock ends soon; until then the screen shows what was read before
        if self.has_body and (body := self.query_one("#body")).display is trouble:
            body.display = not trouble
        if trouble is self.is_readable:
            self.is_readable = not trouble
            self.refresh_bindings()
            if not trouble:
                self._focus_table()
        panel = self.query_one("#trouble", EmptyState)
        if panel.display is not trouble:  # each change computes the layout of the whole screen
            panel.display = trouble
        if trouble:
            await panel.show_advice(*_advice(look, self.session))
            if self.has_body and (self.focused is None or not self.focused.display):
                self.focus_next("#trouble Button")
        if self.has_body and (look.ready or not self.NEEDS_STORE):
            self.look_changed(look)


class _Body(Vertical):
    """What a screen composes, as one widget, so that it is mounted as a whole."""

    def __init__(self, body: Callable[[], ComposeResult]) -> None:
        super().__init__(id="body")
        self._body = body

    def compose(self) -> ComposeResult:
        yield from self._body()


def _advice(look: Look, session: Session) -> tuple[str, str, tuple[Step, ...]]:
    """Return what is wrong with the store, and what can be done."""
    why = look.why or ""
    first = (
        Step("Import timings", "app.import_timings", "Those that come with Diode, or a file's, "
             f"into the new store {session.location}.", "i"),
        Step("Collect timings", "app.create_store", "On this machine's GPUs, into a new store."),
        Step("Look at a program", "app.go('programs')", "Which of its products gain most; this "
             "needs no store.", "P"),
    )  # fmt: skip
    kept = "A backup is put beside it first." if isinstance(session.location, Path) else ""
    update = Step("Update the store", "app.create_store", kept)
    title = {
        Condition.OPENING: "Opening the store ...",
        Condition.MISSING: "There is no store yet",
        Condition.LOCKED: "The store is locked",
        Condition.OLD: "The store is of an older schema",
        Condition.NEW: "The store is of a newer schema",
        Condition.BROKEN: "The store cannot be read",
    }.get(look.condition, "")
    steps = {Condition.MISSING: first, Condition.OLD: (update,)}.get(look.condition, ())
    if look.condition is Condition.MISSING and session.read_only:
        why = f"{why} This dashboard is read-only and makes none."
    return title, why, () if session.read_only else steps

"""The dashboard: its screens, the poll of the store, themes, keys and the palette."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.command import Provider
from textual.dom import DOMNode
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.widgets import Input

from diode_app import settings as user_settings
from diode_app.actions import Actions
from diode_app.app_actions import APP_ACTIONS
from diode_app.data.overview import shipped_timings
from diode_app.data.store_access import Condition, StoreAccess
from diode_app.keys import ASKING, Keys, Passed
from diode_app.links import Link, page_of
from diode_app.screen_commands import headless_commands, palette_entries
from diode_app.screens.base import DiodeScreen, ModelAsked, SettingsChanged, StoreLooked
from diode_app.screens.places import ASIDE, PLACES, Place
from diode_app.session import Session
from diode_app.settings import Settings, SettingsError
from diode_app.telling import BRING_TITLE_BACK, KEEP_TITLE, Telling, sentence_of
from diode_app.themes import NAMES, THEMES
from diode_app.warming import warm
from diode_app.widgets.modals import Confirm, ErrorDialog, HeadlessCommands
from diode_engine import paths
from diode_engine.errors import DiodeError
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store

POLL_SECONDS = 0.5
# The screens that are made while no key is pressed, so that a first visit is as quick as the next.
# Those that take longest to make come first.
MADE_AHEAD = ("runs", "ask", "train", "validate", "collect", "data", "settings", "models", "about")
QUIET_SECONDS = 0.3  # without a key, before the next of these screens is made
_LOOK_SECONDS = 0.02
BLURRED = 4  # while the terminal does not have the focus, only every 4th poll is done


def _everything() -> type[Provider]:
    from diode_app.search import Everything

    return Everything


class DiodeApp(Actions, App[None]):
    """Made by `create_app`, for the command and for the tests."""

    CSS_PATH = "app.tcss"
    TITLE = "Diode"
    DEFAULT_MODE = "home"
    COMMANDS = App.COMMANDS | {_everything}
    ACTIONS = APP_ACTIONS
    HELP_TITLE: ClassVar[str] = "Everywhere"

    def __init__(
        self,
        session: Session,
        *,
        problem: str | None = None,
        poll_seconds: float = POLL_SECONDS,
        wanted: Link | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        for place in PLACES:
            self.add_mode(place.mode, partial(self._screen_of, place))
        self._poll_seconds = poll_seconds
        self._problem = problem
        self._wanted = wanted  # the place or page to begin with
        self._looking = False
        self._warmed = False
        self._ticks = 0
        self._clashes: set[str] = set()
        self._telling = Telling(self.to_terminal)
        self._came_from = self.DEFAULT_MODE
        self.keys = Keys(self, super().on_event)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.keys.put(event)
        else:
            await super().on_event(event)

    def on_passed(self, event: Passed) -> None:
        event.arrived.set()

    def _screen_of(self, place: Place) -> Screen[Any]:
        screen: Screen[Any] = place.load()(self.session)
        # Textual considers a new screen's styles outdated and parses every style sheet twice more,
        # which takes 100 ms. Without that they are applied too, when the screen is mounted.
        screen._css_update_count = self._css_update_count
        return screen

    def on_load(self) -> None:
        # Before there is a screen: with another theme Textual parses all styles, and styles all
        # widgets, again.
        for theme in THEMES:
            self.register_theme(theme)
        self.apply(self.session.settings)

    def on_mount(self) -> None:
        if self._problem is not None:
            self.notify(self._problem, severity="warning", timeout=15, markup=False)
        self.to_terminal(KEEP_TITLE)
        self.set_interval(self._poll_seconds, self._poll)
        self.action_look()

    def on_unmount(self) -> None:
        self.to_terminal(BRING_TITLE_BACK)

    def to_terminal(self, sequence: str) -> None:
        """Writes the text to the terminal as it is."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    # The store

    def _poll(self) -> None:
        self._ticks += 1
        if self.app_focus or self._ticks % BLURRED == 0:
            self.action_look()

    def action_look(self) -> None:
        if not self._looking:
            self._looking = True
            self.run_worker(
                self._look(), group="poll", description="looks at the store", exit_on_error=False
            )

    async def _look(self) -> None:
        before = self.session.store.last
        try:
            look = await self.session.store.look()
        finally:
            self._looking = False
        self._telling.title(look, self.session.location.name)
        for run in self._telling.ended(look):
            self.run_worker(self._tell_end(run), group="poll", exit_on_error=False)
        # A screen that another one covers is told when it is in front again: for each message to
        # such a screen Textual would paint the whole terminal anew.
        if isinstance(self.screen, DiodeScreen):
            self.screen.post_message(StoreLooked(look))
        if not self._warmed:
            self._warmed = True
            self.run_worker(self._work_ahead(), group="warming", exit_on_error=False)
            if self._wanted is not None:
                self.open_link(self._wanted)
        if before.ready and look.condition is Condition.LOCKED and look.why:
            self.notify(look.why, severity="warning", markup=False)

    async def _work_ahead(self) -> None:
        await warm(self.stylesheet, self._is_busy)
        for mode in MADE_AHEAD:
            while self._is_busy() or self.keys.quiet_seconds < QUIET_SECONDS:
                await asyncio.sleep(_LOOK_SECONDS)
            if mode not in self._screen_stacks:
                await self._init_mode(mode)  # as switch_mode does; it reads once it is shown

    async def _tell_end(self, run: int) -> None:
        def ended(store: Store) -> Status:
            from diode_engine.runs import look

            return look(store, run)

        try:
            status = await self.session.store.read(ended)
        except DiodeError:
            return  # the store is gone, and the screen says so
        sentence = sentence_of(status)
        bad = str(status.state) in ("failed", "dead")
        self.notify(sentence, severity="error" if bad else "information", markup=False)
        self._telling.tell(sentence, self.session.settings.tell)

    def _is_busy(self) -> bool:
        """Whether a key is being handled, or a screen is being made or read for."""
        working = ("default", "reading")
        return self.keys.busy or any(w.group in working and not w.is_finished for w in self.workers)

    def action_undo(self) -> None:
        async def take_back() -> str:
            self.session.store.must_be_writable()
            done = self.session.undo.take()
            if done is None:
                return "There is nothing to undo."
            return await done.back()

        self._act(take_back)

    def action_create_store(self) -> None:
        async def create() -> str:
            await self.session.store.create()
            return f"The store {self.session.location} is ready."

        self._act(create)

    def action_import_shipped(self, asked: bool = False) -> None:
        async def bring() -> str | None:
            from diode_app.screens.run import RunScreen

            self.session.store.must_be_writable()
            files = shipped_timings()
            if not files:
                raise DiodeError("This Diode came without timings; install it again.")
            if not asked and not await self.push_screen_wait(
                Confirm("Import the timings that come with Diode into this store?", yes="Import")
            ):
                return None
            run = await self.session.store.start_import(files)
            self.push_screen(RunScreen(self.session, run))
            return f"Run {run} imports the shipped timings; it continues when you leave."

        self._act(bring)

    def _act(self, doing: Callable[[], Awaitable[str | None]]) -> None:
        async def done() -> None:
            try:
                says = await doing()
            except DiodeError as error:
                await self.push_screen_wait(ErrorDialog(str(error)))
            else:
                if says:
                    self.notify(says, markup=False)
            self.action_look()

        self.run_worker(done(), group=ASKING, exit_on_error=False)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Input):  # a line that blinks is sent again with each blink
            event.widget.cursor_blink = False

    # Where one is

    def delay_update(self, delay: float = 0.0) -> None:
        """Does nothing. Textual would delay each change of screens by 50 ms, so that nobody sees a
        screen that is half made; here the frame is shown first and the body as a whole."""

    def action_go(self, mode: str) -> None:
        """Goes to a place; a second time, from a place that was only visited (such as Help),
        back."""
        if self.screen.is_modal:
            return
        if mode == self.current_mode and mode in ASIDE:
            mode = self._came_from
        elif self.current_mode not in ASIDE:
            self._came_from = self.current_mode
        self.switch_mode(mode)

    def action_leave_aside(self) -> None:
        """Leaves a place that was only visited: goes back to where the person was before."""
        if self.current_mode in ASIDE:
            self.switch_mode(self._came_from)

    async def action_press(self, key: str) -> None:
        """Does at once what another key does at the focus. Where `key` has ctrl+ and no meaning
        there, does what the key without ctrl+ does."""
        for name in (key, key.removeprefix("ctrl+")):
            if (active := self.screen.active_bindings.get(name)) is not None:
                await self.run_action(active.binding.action, active.node)
                return

    def action_help(self) -> None:
        if not self.screen.is_modal:
            self.show_help()

    def show_help(self, words: str = "") -> None:
        """Opens the help in front of the screen; with words, only what contains them."""
        from diode_app.screens.help import Help

        self.push_screen(Help(self.session, self.screen, words))

    def action_tour(self) -> None:
        from diode_app.screens.tour import Tour

        if not self.screen.is_modal:
            self.push_screen(Tour())

    def open_link(self, link: Link) -> None:
        """Goes to the link's place, and opens the page of what the link names in front of it."""

        async def opened() -> None:
            try:
                page = await page_of(self.session, link)
            except DiodeError as error:
                await self._place_made()
                await self.push_screen_wait(ErrorDialog(str(error)))
                return
            if link.filter:
                self.session.narrowed[link.place] = link.filter
            await self.switch_mode(link.place)
            await self._place_made()
            if page is not None:
                await self.push_screen(page)
                return
            while len(self.screen_stack) > 1:  # pages in front of the place
                await self.pop_screen()
            if isinstance(self.screen, DiodeScreen) and self.screen.has_body:
                self.screen.looked()

        self.run_worker(opened(), group=ASKING, exit_on_error=False)

    async def _place_made(self) -> None:
        """Waits until the present place has its body. A screen that is covered before is not made
        as long as it is covered."""
        place = self.screen_stack[0]
        while isinstance(place, DiodeScreen) and not place.has_body:
            await asyncio.sleep(0.01)

    def on_model_asked(self, event: ModelAsked) -> None:
        from diode_app.screens.model import ModelScreen

        self.push_screen(ModelScreen(self.session, event.folder))

    # Settings

    def apply(self, settings: Settings) -> None:
        """Uses these settings from now on."""
        self.session.settings = settings
        self.theme = settings.theme
        self._clashes.clear()
        self.set_keymap(dict(settings.keys))

    def change(self, settings: Settings) -> None:
        """Applies and writes settings; they stay in force also where they cannot or must not be
        written."""
        self.apply(settings)
        if self.session.settings_path is None or self.session.read_only:
            return
        try:
            user_settings.save(self.session.settings_path, settings)
        except SettingsError as error:
            self.notify(str(error), severity="warning", markup=False)

    def on_settings_changed(self, event: SettingsChanged) -> None:
        self.change(event.settings)

    def action_theme(self) -> None:
        following = NAMES[(NAMES.index(self.session.settings.theme) + 1) % len(NAMES)]
        self.change(replace(self.session.settings, theme=following))
        self.notify(f"The theme is {following}.", markup=False)

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        for binding in clashed_bindings:
            if binding.key not in self._clashes:
                self._clashes.add(binding.key)
                self.notify(
                    f"By your settings the key {binding.key} has more than one meaning; "
                    f"{binding.id} no longer has it.",
                    severity="warning",
                    markup=False,
                )

    def get_line_filters(self) -> Sequence[LineFilter]:
        """With NO_COLOR no colours are written; Textual's own filter writes greys, which are
        colours."""
        filters = super().get_line_filters()
        return [*filters, NoColor()] if self.no_color else filters

    # Commands and texts

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return palette_entries(self, screen)

    def action_commands(self) -> None:
        if not isinstance(self.screen, DiodeScreen):
            return
        commands = headless_commands(self.session, self.screen)
        if not commands:
            self.notify("Nothing on this screen has a command.")
            return
        self.push_screen(HeadlessCommands(commands), self.copy)

    def action_copy_as_text(self) -> None:
        """Copies the table that has the focus, else the one that is visible, else the screen."""
        from diode_app.widgets.table import PagedTable

        screen = self.screen
        if screen.is_modal:
            return
        focused = () if self.focused is None else self.focused.ancestors_with_self
        nodes = [*focused, *screen.query(PagedTable)]
        tables = (node for node in nodes if isinstance(node, PagedTable) and node.region)
        if (table := next(tables, None)) is not None:
            table.copy()
            return
        strips = screen._compositor.render_strips()
        lines = ("".join(segment.text for segment in strip).rstrip() for strip in strips)
        self.copy_to_clipboard("".join(f"{line}\n" for line in lines))
        self.notify("What the screen shows is copied as text.")

    def copy(self, words: str | None) -> None:
        """Copies a text (by OSC 52) and shows it too, since not every terminal supports that."""
        if words:
            self.copy_to_clipboard(words)
            self.notify(words, title="Copied", timeout=10, markup=False)


def create_app(
    store: Location,
    *,
    read_only: bool = False,
    theme: str | None = None,
    settings_path: Path | None = None,
    poll_seconds: float = POLL_SECONDS,
    wanted: Link | None = None,
) -> DiodeApp:
    """The dashboard over this store, which need not exist. It begins with `wanted` (None: Home).
    Where the settings cannot be read, the screen says so, the defaults are used, and no settings
    are written."""
    path: Path | None = settings_path or paths.settings_path()
    problem = None
    try:
        settings = user_settings.load(path) if path is not None else Settings()
    except SettingsError as error:
        settings, problem, path = Settings(), str(error), None
    if theme is not None:
        settings = replace(settings, theme=theme)
    session = Session(StoreAccess(store, read_only=read_only), settings, path)
    return DiodeApp(session, problem=problem, poll_seconds=poll_seconds, wanted=wanted)

"""The dashboard: its screens, the poll of the store, themes, keys and the palette."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
from collections.abc import Iterable, Sequence
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
from textual.notifications import Notify, SeverityLevel
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Tab, Tabs

from diode_app import notifications
from diode_app import settings as user_settings
from diode_app.actions import Actions
from diode_app.data.background import in_thread
from diode_app.data.overview import shipped_timings
from diode_app.data.store_access import Condition, StoreAccess
from diode_app.keys import KeyHandled, Keys
from diode_app.links import Link, link_to, page_of
from diode_app.screens.base import DiodeScreen
from diode_app.screens.places import APP_ACTIONS, ASIDE, PLACES, Place, modules
from diode_app.session import Session
from diode_app.settings import Settings, SettingsError
from diode_app.text import next_of
from diode_app.themes import NAMES, THEMES
from diode_app.widgets.files import complete_path, existing_file
from diode_app.widgets.jump import Jump, jump_targets
from diode_app.widgets.modals import Confirm, HeadlessCommands, Prompt
from diode_app.widgets.plain import PlainText, read_text
from diode_app.widgets.work import acts
from diode_engine import paths
from diode_engine.errors import DiodeError
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store

POLL_SECONDS = 0.5
_FIRST_MODULE = "diode_app.screens.runs"  # what most others need comes with it
# The screens that are made while no key is pressed.
MADE_AHEAD = tuple(place.mode for place in PLACES if place.mode != "home")
QUIET_SECONDS = 0.3  # without a key, before the next of these screens is made
PAUSE_SECONDS = 2.0  # without a key, before the garbage of the pages that were left is collected
_AHEAD = "ahead"  # the mode, which is never shown, of the screens that are made ahead
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
    COMMANDS = {_everything}  # noqa: RUF012  # as Textual types it
    ACTIONS = APP_ACTIONS
    WRITES = frozenset({"import_timings", "create_store"})
    HELP_TITLE: ClassVar[str] = "Everywhere"

    def __init__(
        self, session: Session, problem: str | None, *, poll_seconds: float, wanted: Link | None,
        plain: bool,
    ) -> None:  # fmt: skip
        self.is_plain = plain  # pages are text, without drawing characters
        super().__init__()
        self.session = session
        for place in PLACES:
            self.add_mode(place.mode, partial(self._screen_of, place))
        self.add_mode(_AHEAD, Screen)
        self._poll_seconds = poll_seconds
        self._problem = problem
        self._wanted = wanted  # the place or page to begin with
        self._looking = False
        self._preloads = False
        self._ticks = 0
        self._clashes: set[str] = set()
        self._notifier = notifications.RunNotifier(self.write_to_terminal)
        self._came_from = self.DEFAULT_MODE
        self._made: dict[str, DiodeScreen] = {}  # the screens of the places, by mode
        self.keys = Keys(self, super().on_event)
        session.store.tell_waiting = self._show_waiting

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self.keys.put(event)
        else:
            await super().on_event(event)

    def on_key_handled(self, event: KeyHandled) -> None:
        event.arrived.set()

    def _screen_of(self, place: Place) -> Screen[Any]:
        """Return the screen of the place, which may have been made ahead."""
        if place.mode not in self._made:
            self._made[place.mode] = place.load()(self.session)
        return self._made[place.mode]

    def refresh_css(self, animate: bool = True) -> None:
        """Style everything for another theme. Textual calls this also for each new screen, and
        parses every style sheet twice, which takes 100 ms; a new screen is styled when it is
        mounted."""
        screen = self.screen if self.screen_stack else None
        if not isinstance(screen, DiodeScreen) or screen.styled_in != self.theme:
            super().refresh_css(animate)
            if isinstance(screen, DiodeScreen):
                screen.styled_in = self.theme

    def on_load(self) -> None:
        # Before there is a screen: with another theme Textual parses all styles, and styles all
        # widgets, again.
        for theme in THEMES:
            self.register_theme(theme)
        self.apply_settings(self.session.settings)

    def on_mount(self) -> None:
        if self._problem is not None:
            self.notify(self._problem, severity="warning", timeout=15, markup=False)
        self.write_to_terminal(notifications.SAVE_TITLE)
        self.set_interval(self._poll_seconds, self._poll)
        self.look_at_store()

    def on_unmount(self) -> None:
        self.write_to_terminal(notifications.RESTORE_TITLE)

    def write_to_terminal(self, sequence: str) -> None:
        """Write the text to the terminal as it is, which is the stream that Textual writes to."""
        if not self.is_headless and not self.is_web and sys.__stderr__ is not None:
            print(sequence, end="", file=sys.__stderr__, flush=True)

    # The store

    def _poll(self) -> None:
        self._ticks += 1
        is_quiet = self.keys.quiet_seconds > PAUSE_SECONDS and not self._is_busy()
        if is_quiet and gc.get_count()[2]:
            gc.collect()  # takes 0.2 s now, and several seconds amid keys if it is left to Python
        if self.app_focus or self._ticks % BLURRED == 0:
            self.look_at_store()

    def look_at_store(self) -> None:
        if not self._looking:
            self._looking = True
            self.run_worker(self._look(), group="poll", exit_on_error=False)

    async def _look(self) -> None:
        before = self.session.store.last
        try:
            look = await self.session.store.look()
        finally:
            self._looking = False
        self._notifier.set_title(look, self.session.location.name)
        for run in self._notifier.find_ended(look):
            self.run_worker(self._notify_end(run), group="poll", exit_on_error=False)
        # A screen that another one covers is told when it is in front again: for each message to
        # such a screen Textual would paint the whole terminal anew.
        if isinstance(self.screen, DiodeScreen):
            self.screen.call_later(self.screen.take_look, look)
        if not self._preloads:
            self._preloads = True
            self.run_worker(self._work_ahead(), group="preloading", exit_on_error=False)
            if self._wanted is not None:
                self.open_link(self._wanted)
        if before.ready and look.condition is Condition.LOCKED and look.why:
            self.notify(look.why, severity="warning", markup=False)

    def _show_waiting(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, DiodeScreen | Prompt) and screen.is_attached:
                screen.show_waiting()

    async def _work_ahead(self) -> None:
        """Import the modules of all screens and make the screens while there is nothing else to do,
        so that a first visit is as quick as the next."""
        for name in modules():
            await asyncio.sleep(0)
            # The first one is imported while the first figures are read, without waiting.
            while name != _FIRST_MODULE and self._is_busy():
                await asyncio.sleep(_LOOK_SECONDS)
            await in_thread(partial(importlib.import_module, name), "imports")
        gc.freeze()  # a full collection of all of it takes a tenth of a second
        places = {place.mode: place for place in PLACES}
        for mode in MADE_AHEAD:
            while self._is_busy() or self.keys.quiet_seconds < QUIET_SECONDS:
                await asyncio.sleep(_LOOK_SECONDS)
            if mode not in self._made:
                await self._make_ahead(places[mode])

    async def _make_ahead(self, place: Place) -> None:
        """Mount the screen of the place where nobody sees it; it reads once it is shown."""
        before = self.current_mode
        try:
            self.get_screen_stack(_AHEAD)
        except KeyError:  # the first screen; nothing is painted meanwhile
            self.switch_mode(_AHEAD)
            self.switch_mode(before)
        screen = self._screen_of(place)
        await self.push_screen(screen, mode=_AHEAD)
        screen.post_message(events.ScreenResume())  # from here on it can be laid out

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information",
        timeout: float | None = None, markup: bool = True,
    ) -> None:  # fmt: skip
        """Do what Textual does, with a LastingNotification."""
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        given = notifications.LastingNotification(message, title, severity, seconds, markup)
        self.post_message(Notify(given))

    async def _notify_end(self, run: int) -> None:
        def ended(store: Store) -> Status:
            from diode_engine.runs import look

            return look(store, run)

        try:
            status = await self.session.store.read(ended)
        except DiodeError:
            return  # the store is gone, and the screen says so
        sentence = notifications.describe_end(status)
        bad = str(status.state) in ("failed", "dead")
        self.notify(sentence, severity="error" if bad else "information", markup=False)
        self._notifier.notify(sentence, self.session.settings.tell)

    def _is_busy(self) -> bool:
        """Return whether a key is being handled, or a screen is being made or read for."""
        working = ("default", "reading")
        return self.keys.busy or any(w.group in working and not w.is_finished for w in self.workers)

    async def action_quit(self) -> None:
        """Leave; asks first where something that was changed here is not written yet."""

        def leave(wanted: bool | None) -> None:
            if wanted:
                self.exit()

        if self.session.store.writing and not isinstance(self.screen, Confirm):
            question = "Something still waits to be written to the store. Leave without it?"
            self.push_screen(Confirm(question, yes="Leave", no="Wait"), leave)
        else:
            self.exit()

    def reload(self) -> None:
        """Called when an action is done."""
        self.look_at_store()

    @acts(writes=True)
    async def action_undo(self) -> str:
        steps = self.session.undo
        return await steps.pop()() if steps else "There is nothing to undo."

    @acts()
    async def action_create_store(self) -> str:
        """Make the store, or updates one of an older schema. A new store is empty: goes to
        Collect."""
        is_missing = self.session.store.last.condition is Condition.MISSING
        await self.session.store.create()
        if is_missing:
            self.action_go("collect")
        return f"The store {self.session.location} is ready."

    @acts(writes=True)
    async def action_import_timings(self, shipped: bool = False) -> str | None:
        """Import a dataset file, or, where none is named or they are meant, those shipped."""
        prompt = Prompt(
            "Import the timings of which dataset file? Without one, those that come with Diode",
            check=lambda given: existing_file(given) if given else None,
            suggest=complete_path,
        )
        given = "" if shipped else await self.push_screen_wait(prompt)
        if given is None:
            return None
        files = (Path(given).expanduser(),) if given else shipped_timings()
        run = await self.session.store.start_import(files)
        self.open_run(run)
        what = files[0].name if given else "the shipped timings"
        return f"Run {run} imports {what}; it continues when you leave."

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Input):  # a line that blinks is sent again with each blink
            event.widget.cursor_blink = False

    # Where one is

    def delay_update(self, delay: float = 0.0) -> None:
        """Do nothing. Textual would delay each change of screens by 50 ms, so that nobody sees a
        screen that is half made; here the frame is shown first and the body as a whole."""

    def action_go(self, mode: str) -> None:
        """Go to a place; a second time, from a place that was only visited (such as Help), back."""
        if self.screen.is_modal:
            return
        if mode == self.current_mode and mode in ASIDE:
            mode = self._came_from
        elif self.current_mode not in ASIDE:
            self._came_from = self.current_mode
        self.go_to_place(mode)

    def go_to_place(self, mode: str, given: object = None) -> None:
        """Show the place itself, without the pages that were opened in front of it; its screen
        `take`s what is given."""
        with self.batch_update():
            self.switch_mode(mode)
            while len(self.screen_stack) > 1:
                self.pop_screen()
        if given is not None:
            self._made[mode].give(given)

    def action_leave_aside(self) -> None:
        """Leave a place that was only visited: goes back to where the person was before."""
        if self.current_mode in ASIDE:
            self.switch_mode(self._came_from)

    async def action_press(self, key: str) -> None:
        """Do at once what another key does at the focus. Where `key` has ctrl+ and no meaning
        there, does what the key without ctrl+ does."""
        for name in (key, key.removeprefix("ctrl+")):
            if (active := self.screen.active_bindings.get(name)) is not None:
                await self.run_action(active.binding.action, active.node)
                return

    def action_help(self) -> None:
        from diode_app.screens.help import Help

        if not self.screen.is_modal:
            self.push_screen(Help(self.session, self.screen))

    def action_jump(self) -> None:
        def go(target: Widget | None) -> None:
            if isinstance(target, Tab):
                tabs = next(node for node in target.ancestors if isinstance(node, Tabs))
                tabs.active = target.id or ""
            elif target is not None:
                target.focus()

        if targets := jump_targets(self.screen):
            self.push_screen(Jump(targets), go)

    @acts()
    async def open_link(self, link: Link) -> None:
        """Go to the link's place, and open the page of what the link names in front of it."""
        try:
            page = await page_of(self.session, link)
        except DiodeError:
            await self._place_made()
            raise
        if page is None:
            self.go_to_place(link.place, link.filter or None)
            return
        await self.switch_mode(link.place)
        await self._place_made()
        await self.push_screen(page)

    async def _place_made(self) -> None:
        """Wait until the present place has its body. A screen that is covered before is not made as
        long as it is covered."""
        place = self.screen_stack[0]
        while isinstance(place, DiodeScreen) and not place.has_body:
            await asyncio.sleep(0.01)

    def open_run(self, run: int) -> None:
        """Open the page of a run."""
        from diode_app.screens.run import RunScreen

        self.push_screen(RunScreen(self.session, run))

    def open_model(self, folder: str) -> None:
        """Open the page of the model in this folder."""
        from diode_app.screens.model import ModelScreen

        self.push_screen(ModelScreen(self.session, folder))

    # Settings

    def apply_settings(self, settings: Settings) -> None:
        """Use these settings from now on."""
        self.session.settings = settings
        self.theme = settings.theme
        self._clashes.clear()
        self.set_keymap(dict(settings.keys))

    def change_settings(self, **changes: Any) -> None:
        """Apply and write these settings; they stay in force also where they cannot or must not be
        written."""
        settings = replace(self.session.settings, **changes)
        self.apply_settings(settings)
        if self.session.settings_path is None or self.session.read_only:
            return
        try:
            user_settings.save(self.session.settings_path, settings)
        except SettingsError as error:
            self.notify(str(error), severity="warning", markup=False)

    def action_theme(self) -> None:
        following = next_of(NAMES, self.session.settings.theme)
        self.change_settings(theme=following)
        self.notify(f"The theme is {following}.", markup=False)

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        for binding in clashed_bindings:
            if binding.key not in self._clashes:
                self._clashes.add(binding.key)
                why = f"By your settings the key {binding.key} has more than one meaning"
                self.notify(f"{why}; {binding.id} no longer has it.", severity="warning")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """With NO_COLOR no colours are written; Textual's own filter writes greys, which are
        colours."""
        filters = [*super().get_line_filters(), *([PlainText()] if self.is_plain else [])]
        return [*filters, NoColor()] if self.no_color else filters

    # Commands and texts

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield an entry for each action that can be done now, with its key. How to move about is
        in the help alone."""
        for active in list(screen.active_bindings.values()):
            binding = active.binding
            if binding.id is not None and active.enabled and not binding.id.startswith("move."):
                yield SystemCommand(
                    binding.description,
                    f"{self.get_key_display(binding)}  {binding.tooltip}",
                    partial(self.run_action, binding.action, active.node),
                )

    def action_commands(self) -> None:
        screen, session = self.screen, self.session
        if not isinstance(screen, DiodeScreen):
            return
        commands = screen.headless_commands()
        if (link := link_to(screen)) is not None:
            opening = link.command(session.location, read_only=session.read_only)
            commands.insert(0, ("Open this", opening))
        if not commands:
            self.notify("Nothing on this screen has a command.")
            return
        self.push_screen(HeadlessCommands(commands), self.copy)

    def action_copy_as_text(self) -> None:
        """Copy the table that has the focus, else the one that is visible, else the screen."""
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
        self.copy_to_clipboard(read_text(screen))
        self.notify("What the screen shows is copied as text.")

    def copy(self, words: str | None) -> None:
        """Copy a text (by OSC 52) and show it too, since not every terminal supports that."""
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
    plain: bool = False,
) -> DiodeApp:
    """Return the dashboard over this store, which need not exist. It begins with `wanted` (None:
    Home). Where the settings cannot be read, the screen says so, the defaults are used, and no
    settings are written."""
    path: Path | None = settings_path or paths.settings_path()
    problem = None
    try:
        settings = user_settings.load(path) if path is not None else Settings()
    except SettingsError as error:
        settings, problem, path = Settings(), str(error), None
    if theme is not None:
        settings = replace(settings, theme=theme)
    session = Session(StoreAccess(store, read_only=read_only), settings, path)
    return DiodeApp(session, problem, poll_seconds=poll_seconds, wanted=wanted, plain=plain)

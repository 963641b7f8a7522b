"""The actions of the screens. Key bindings, the palette, the help, the settings and the headless
commands are made from them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.binding import Binding

from diode_engine.location import Location


@dataclass(frozen=True)
class Action:
    """One action. `id` is `place.name`: its method is `action_<name>`, and users change its key by
    this id.

    `headless` is the command that does the same without the dashboard. It has {names} for what is
    chosen on the screen; {store} is always known. None: there is no such command, as for moving
    about on the screen. With `footer` False the action is not in the footer, only in the palette
    and the help. `does` is the action in Textual's notation where it takes arguments, such as
    `go('home')`. What `writes` is not offered with --read-only.
    """

    id: str
    key: str
    label: str
    tooltip: str
    headless: str | None = None
    footer: bool = True
    does: str = ""
    writes: bool = False

    @property
    def name(self) -> str:
        return self.id.rpartition(".")[2].replace("-", "_")

    def binding(self) -> Binding:
        return Binding(
            self.key,
            self.does or self.name,
            self.label,
            show=self.footer,
            tooltip=self.tooltip,
            id=self.id,
        )


def fill_in(command: str, store: Location, values: Mapping[str, object]) -> str:
    """Return the headless command with its values; a value that is not chosen is the name in
    capitals."""
    return command.format_map(_Words({"store": store, **values}))


def import_timings(place: str, *, footer: bool = False) -> Action:
    """Return the same action on the screens that need timings."""
    return Action(
        f"{place}.import", "i", "Import", "Import the timings that come with Diode, or those of a "
        "dataset file.", "diode-engine data import datasets/*/*.msgpack.zst --store={store}",
        footer=footer, does="app.import_timings",
    )  # fmt: skip


class _Words(dict[str, object]):
    """Values as a shell takes them, a tuple as several words; a missing value as its name."""

    def __getitem__(self, name: str) -> object:
        value = super().get(name)
        if value is None:
            return name.upper()
        return shlex.join(value) if isinstance(value, tuple) else shlex.quote(str(value))


class Actions:
    """A mixin before a Textual class: its `ACTIONS` become key bindings."""

    ACTIONS: tuple[Action, ...] = ()
    # The names of the actions that write: those of ACTIONS, and others that buttons do.
    WRITES: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        if own := cls.__dict__.get("ACTIONS"):
            cls.WRITES |= {action.name for action in own if action.writes}
            # Before Textual's own __init_subclass__, which merges the bindings.
            given = cls.__dict__.get("BINDINGS", ())
            cls.BINDINGS = [*given, *(a.binding() for a in own)]  # type: ignore[attr-defined]
        super().__init_subclass__(**options)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be done now; only then is it offered."""
        may: bool | None = super().check_action(action, parameters)  # type: ignore[misc]
        return may and not self.is_refused(action)

    def is_refused(self, action: str) -> bool:
        """Whether the action writes and the dashboard was started with --read-only."""
        session = getattr(self.app, "session", None)  # type: ignore[attr-defined]
        return action in self.WRITES and session is not None and session.read_only


def clashes(actions: Iterable[Action], keys: Mapping[str, str]) -> list[str]:
    """Return a sentence for each unknown id in `keys`, and for each key that two actions would
    share: two of the same place, or one of a place and one that works everywhere."""
    known = {action.id: action for action in actions}
    found = [f"There is no action {name}." for name in keys if name not in known]
    taken: dict[tuple[str, str], str] = {}
    everywhere = {"app", "screen"}
    for action in sorted(known.values(), key=lambda a: a.id.partition(".")[0] not in everywhere):
        place = action.id.partition(".")[0]
        for key in keys.get(action.id, action.key).split(","):
            where = "" if place in everywhere else place
            other = taken.get(("", key)) or taken.get((where, key))
            if other is not None:
                found.append(f"The key {key} would do both {other} and {action.id}.")
            taken[where, key] = action.id
    return found

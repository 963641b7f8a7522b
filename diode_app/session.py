"""What all screens share: the store, the settings, and what can be undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from diode_app.data.hardware import LocalHardware
from diode_app.data.store_access import StoreAccess
from diode_app.settings import Settings
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.core.problem import Problem


_MAX_STEPS = 20


@dataclass(frozen=True)
class UndoStep:
    """A change: `what` names it, as in "the tags of run 3"; `undo` undoes it and returns a
    sentence, or raises DiodeError."""

    what: str
    undo: Callable[[], Awaitable[str]]


class Undo:
    """The last changes that were made in this dashboard and can be undone."""

    def __init__(self) -> None:
        self._steps: deque[UndoStep] = deque(maxlen=_MAX_STEPS)

    def add(self, what: str, undo: Callable[[], Awaitable[str]]) -> None:
        self._steps.append(UndoStep(what, undo))

    def take(self) -> UndoStep | None:
        """Remove the last change and return it."""
        return self._steps.pop() if self._steps else None


@dataclass
class Session:
    """One dashboard. `here` is None until the hardware was found out. Screens leave messages to
    others here: `asked` is the problem that Ask shows next, and the GPU; `pending_report` is the
    run whose report Validate shows next; `pending_filters` are filters, by the mode of the screen
    whose list gets them, and `pending_fields` the values of a form's fields."""

    store: StoreAccess
    settings: Settings = field(default_factory=Settings)
    settings_path: Path | None = None
    here: LocalHardware | None = None
    pending_report: int | None = None
    asked: tuple[Problem, Hardware | None] | None = None
    filter_history: dict[str, list[str]] = field(default_factory=dict)  # by what is listed
    undo: Undo = field(default_factory=Undo)
    pending_filters: dict[str, str] = field(default_factory=dict)
    pending_fields: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def hardware(self) -> Hardware | None:
        """The GPU here, or the CPU where there is none; None until it was found out."""
        return None if self.here is None else self.here.hardware

    @property
    def location(self) -> Location:
        return self.store.location

    @property
    def read_only(self) -> bool:
        return self.store.read_only

"""What all screens share: the store, the settings, and what can be undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from diode_app.data.hardware import LocalHardware
from diode_app.data.store_access import StoreAccess
from diode_app.settings import Settings
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware


Undo = Callable[[], Awaitable[str]]
_MAX_STEPS = 20  # that can be undone


@dataclass
class Session:
    """One dashboard. `here` is None until the hardware was found out. `undo` has the last changes
    that were made here: each undoes itself and returns a sentence, or raises DiodeError."""

    store: StoreAccess
    settings: Settings = field(default_factory=Settings)
    settings_path: Path | None = None
    here: LocalHardware | None = None
    filter_history: dict[str, list[str]] = field(default_factory=dict)  # by what is listed
    undo: deque[Undo] = field(default_factory=partial(deque, maxlen=_MAX_STEPS))

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

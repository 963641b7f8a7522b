"""What all screens share: the store, the settings, and where they are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from diode_app.data.hardware import Here
from diode_app.data.store_access import StoreAccess
from diode_app.settings import Settings
from diode_app.undo import Undo
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.core.problem import Problem


@dataclass
class Session:
    """One dashboard. `here` is None until the hardware was found out. Screens leave messages to
    others here: `asked` is the problem that Ask shows next; `narrowed` are filters, by the mode of
    the screen whose list gets them."""

    store: StoreAccess
    settings: Settings = field(default_factory=Settings)
    settings_path: Path | None = None
    here: Here | None = None
    asked: Problem | None = None
    filter_history: dict[str, list[str]] = field(default_factory=dict)  # by what is listed
    undo: Undo = field(default_factory=Undo)
    narrowed: dict[str, str] = field(default_factory=dict)

    @property
    def location(self) -> Location:
        return self.store.location

    @property
    def read_only(self) -> bool:
        return self.store.read_only

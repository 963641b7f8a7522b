"""The states of an integration."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Whether an integration chooses."""

    REGISTERED = "registered"  # nothing was tried yet
    WAITING = "waiting"  # arranged; its model is loaded when something is compiled
    ACTIVE = "active"
    INACTIVE = "inactive"  # it could not be turned on, or was turned off: see the reason

"""What an integration is: a place in torch that asks for choices, and the model that chooses there.

Every integration has one life cycle. It is registered, by Diode or by a package with an entry point
of the group `diode_engine.integrations` (docs/extending.md has an example). `turn_on`
then tests the place with a dummy, loads what the integration needs, and enables it, each step only
where the one before has worked. `disable` restores torch.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from diode_engine.errors import DiodeError, IntegrationError

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.models.predictor import Predictor

log = logging.getLogger(__name__)

ENTRY_POINTS = "diode_engine.integrations"


class State(StrEnum):
    """Whether an integration chooses."""

    REGISTERED = "registered"  # nothing was tried yet
    WAITING = "waiting"  # its model is loaded when something is compiled
    ACTIVE = "active"
    INACTIVE = "inactive"  # it could not be turned on, or was turned off: see the reason


@dataclass(frozen=True)
class ModelPointer:
    """A model that an integration needs: by the folder or registry reference that
    `install_diode_choices` takes as model_path, or with None the registry's best model of this
    purpose for the present hardware."""

    purpose: str = "gemm"
    reference: str | None = None

    def load(self, hardware: Hardware) -> Predictor:
        """Load the model. Raises IntegrationError where there is no model for the hardware,
        ModelError or RegistryError where it cannot be loaded."""
        from diode_engine import registry
        from diode_engine.models import predictor

        if self.reference is not None:
            found = registry.resolve_for(self.reference, hardware.slug)
            return predictor.Predictor.load(found.folder, hardware)
        best = registry.load_predictor(hardware, self.purpose)
        if best is None:
            raise IntegrationError(
                f"there is no model for {hardware.name} or a GPU much like it; `diode-engine tune` "
                "makes one, and `diode-engine models list` shows those that there are."
            )
        return best


class BaseIntegration(ABC):
    """One place in torch, and the models that choose there.

    With `enable_fallback` an error leaves torch as it was, and `get_integration_status` reports it;
    without, it is raised.
    """

    name: str
    execute_order: int = 100  # lower ones first
    requires: ClassVar[str] = ""  # the name of an integration that must be on

    def __init__(self, *, enable_fallback: bool = True) -> None:
        self.enable_fallback = enable_fallback

    @property
    def models(self) -> Sequence[ModelPointer]:
        """Return the models that it needs."""
        return ()

    @abstractmethod
    def dry_run(self) -> None:
        """Make the place call a dummy function, and leave everything as it was. Raises
        IntegrationError, with a sentence, where the place does not call the dummy."""

    @abstractmethod
    def load(self) -> None:
        """Load the models. Raises DiodeError where that is not possible."""

    @abstractmethod
    def enable(self) -> None:
        """Put the choice in its place, and turn its options on."""

    @abstractmethod
    def disable(self) -> None:
        """Restore what was there."""

    def state(self) -> tuple[State, str] | None:
        """Return the state and the reason for it, or None where the registry knows them."""
        return None

    def turn_on(self) -> None:
        """Run the three steps. Raises what the first step that fails raises."""
        self.dry_run()
        self.load()
        self.enable()


@dataclass
class _Entry:
    integration: BaseIntegration
    order: int
    state: State = State.REGISTERED
    reason: str = "it was not asked for yet"
    replaces: BaseIntegration | None = None  # the active one of its name
    is_being_turned_on: bool = False


class IntegrationRegistry:
    """Integrations by name, turned on in their order. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._broken: dict[str, str] = {}  # entry points that gave no integration: why

    def register(self, integration: BaseIntegration, execute_order: int | None = None) -> None:
        """Add an integration. It takes the place of another one of its name. If that one is
        active, it remains so until this one is turned on."""
        order = integration.execute_order if execute_order is None else execute_order
        with self.lock:
            added, there = _Entry(integration, order), self._entries.get(integration.name)
            if there is not None and there.integration is not integration:
                log.warning("The integration %s is replaced by another one.", integration.name)
                active = self._state(there)[0] is State.ACTIVE
                added.replaces = there.integration if active else there.replaces
            self._entries[integration.name] = added

    def find(self, name: str) -> BaseIntegration:
        """Return the integration of this name. Raises KeyError where there is none."""
        return self._entries[name].integration

    def discover(self) -> list[str]:
        """Register integrations of installed packages that are not registered yet, and return
        their names. One that cannot be registered is skipped with a warning, and its status
        says why."""
        from importlib.metadata import entry_points

        found = []
        with self.lock:
            for point in entry_points(group=ENTRY_POINTS):
                if point.name in self._entries or point.name in self._broken:
                    continue
                try:
                    integration = point.load()()
                    if not isinstance(integration, BaseIntegration):
                        raise IntegrationError(f"{point.value} makes no BaseIntegration.")
                    if integration.name != point.name:
                        raise IntegrationError(
                            f"{point.value} calls itself {integration.name}, and its entry point "
                            f"{point.name}."
                        )
                    self.register(integration)
                except Exception as error:  # noqa: BLE001  # another package's code
                    self._broken[point.name] = f"{type(error).__name__}: {error}"
                    log.warning("The integration %s is skipped: %s", point.name, error)
                else:
                    found.append(point.name)
        return found

    def integrate_all(self, *, requiring: str | None = None) -> dict[str, bool]:
        """Turn on the integrations that are not active, in their order: all, or those that require
        the named one. Return for each name whether it is active."""
        with self.lock:
            return {
                name: self._turn_on(entry)
                for name, entry in self._in_order()
                if requiring in (None, entry.integration.requires)
            }

    def turn_off(self, *, requiring: str, reason: str) -> None:
        """Disable the active integrations that require the named one, the last one first."""
        with self.lock:
            for _, entry in reversed(list(self._in_order())):
                if entry.state is State.ACTIVE and entry.integration.requires == requiring:
                    entry.integration.disable()
                    entry.state, entry.reason = State.INACTIVE, reason

    def _in_order(self) -> Iterator[tuple[str, _Entry]]:
        return iter(sorted(self._entries.items(), key=lambda item: (item[1].order, item[0])))

    def _turn_on(self, entry: _Entry) -> bool:
        integration = entry.integration
        if entry.replaces is None and self._state(entry)[0] is State.ACTIVE:
            return True
        if entry.is_being_turned_on:  # its own imports of Inductor turn all on
            return False
        try:
            entry.is_being_turned_on = True
            self._check_required(integration)
            integration.dry_run()
            integration.load()
            if entry.replaces is not None:
                entry.replaces.disable()
                entry.replaces = None
            integration.enable()
        except Exception as error:
            if not integration.enable_fallback:
                raise
            why = str(error) if isinstance(error, DiodeError) else repr(error)
            # The message of the required one is enough, an older torch lacks some places, and an
            # import fails in the middle of Inductor's own imports and works later.
            quiet = integration.requires and isinstance(error, (IntegrationError, ImportError))
            level = logging.INFO if quiet else logging.WARNING
            log.log(level, "The integration %s is off: %s", integration.name, why)
            log.debug("It has raised this.", exc_info=True)
            entry.state, entry.reason = State.INACTIVE, why
            return False
        finally:
            entry.is_being_turned_on = False
        entry.state, entry.reason = State.ACTIVE, ""
        return self._state(entry)[0] is State.ACTIVE

    def _check_required(self, integration: BaseIntegration) -> None:
        """Raise IntegrationError where the integration requires one that is off."""
        if integration.requires:
            state, why = self._state_of_required(integration)
            if state in (State.REGISTERED, State.INACTIVE):
                raise IntegrationError(why)

    def _state_of_required(self, integration: BaseIntegration) -> tuple[State, str]:
        entry = self._entries.get(integration.requires)
        state, why = (State.INACTIVE, "there is none") if entry is None else self._state(entry)
        return state, f"it requires the integration {integration.requires}, which is {state}: {why}"

    def _state(self, entry: _Entry) -> tuple[State, str]:
        if entry.integration.requires and entry.state in (State.REGISTERED, State.ACTIVE):
            state, why = self._state_of_required(entry.integration)
            if state in (State.WAITING, State.INACTIVE):
                return state, why
        return entry.integration.state() or (entry.state, entry.reason)

    def status(self) -> dict[str, Mapping[str, Any]]:
        """Return for each name: state, reason (why it is not active), requires (the name of the
        integration without which it is off), execute_order and models."""
        with self.lock:
            out: dict[str, Mapping[str, Any]] = {}
            for name, entry in self._in_order():
                state, reason = self._state(entry)
                out[name] = {
                    "state": str(state),
                    "reason": reason,
                    "requires": entry.integration.requires,
                    "execute_order": entry.order,
                    "models": [
                        {"purpose": m.purpose, "reference": m.reference}
                        for m in entry.integration.models
                    ],
                }
            for name, why in self._broken.items():
                out[name] = {"state": str(State.INACTIVE), "reason": why}
            return out

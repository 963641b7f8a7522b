"""Integrations: a model that is used at a place in torch that asks for choices.

An integration first makes its place call a dummy function. Only where that works, its model is
loaded and the choice is turned on. Diode's own is `MatmulIntegration`; others come from packages
with an entry point of the group `diode_engine.integrations` (docs/adding-integrations.md has an
example), or are registered by hand.
"""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor.hook.state import State

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.models.predictor import Predictor

log = logging.getLogger(__name__)

ENTRY_POINTS = "diode_engine.integrations"


@dataclass(frozen=True)
class ModelPointer:
    """A model that an integration needs: by the folder or registry reference that
    `install_diode_choices` takes as model_path, or with None the registry's best model of this
    purpose for the present hardware."""

    purpose: str = "gemm"
    reference: str | None = None

    def load(self, hardware: Hardware) -> Predictor:
        """Raises IntegrationError where there is no model for the hardware, ModelError or
        RegistryError where it cannot be loaded."""
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

    name: ClassVar[str]
    execute_order: ClassVar[int] = 100  # lower ones first

    def __init__(self, *, enable_fallback: bool = True) -> None:
        self.enable_fallback = enable_fallback

    @property
    def models(self) -> Sequence[ModelPointer]:
        """The models that it needs."""
        return ()

    @abstractmethod
    def dry_run(self) -> None:
        """Makes the place call a dummy function, and leaves everything as it was. Raises
        IntegrationError, with a sentence, where the place does not call it."""

    @abstractmethod
    def load(self) -> None:
        """Loads the models. Raises DiodeError where that is not possible."""

    @abstractmethod
    def enable(self) -> None:
        """Installs the choice and turns its options on."""

    @abstractmethod
    def disable(self) -> None:
        """Restores what was there."""

    def state(self) -> tuple[State, str] | None:
        """Its state, and the reason for it, where the integration knows more than the registry."""
        return None


@dataclass
class _Entry:
    integration: BaseIntegration
    order: int
    state: State = State.REGISTERED
    reason: str = "it was not asked for yet"
    replaces: BaseIntegration | None = None  # the active one of its name


class IntegrationRegistry:
    """Integrations by name, turned on in their order. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._broken: dict[str, str] = {}  # entry points that gave no integration: why

    def register(self, integration: BaseIntegration, execute_order: int | None = None) -> None:
        """Adds an integration. It takes the place of another one of its name. If that one is
        active, it remains so until this one is turned on."""
        order = integration.execute_order if execute_order is None else execute_order
        with self._lock:
            added, there = _Entry(integration, order), self._entries.get(integration.name)
            if there is not None and there.integration is not integration:
                log.warning("The integration %s is replaced by another one.", integration.name)
                active = self._state(there)[0] is State.ACTIVE
                added.replaces = there.integration if active else there.replaces
            self._entries[integration.name] = added

    def discover(self) -> list[str]:
        """Registers integrations of installed packages that are not registered yet, and returns
        their names. One that cannot be registered is skipped with a warning, and its status
        says why."""
        found = []
        with self._lock:
            for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
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

    def integrate_all(self) -> dict[str, bool]:
        """Turns on all that are not active, in their order; returns for each name whether it is
        active."""
        with self._lock:
            entries = sorted(self._entries.items(), key=lambda item: (item[1].order, item[0]))
            return {name: self._integrate(entry) for name, entry in entries}

    def _integrate(self, entry: _Entry) -> bool:
        integration = entry.integration
        if entry.replaces is None and self._state(entry)[0] is State.ACTIVE:
            return True
        try:
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
            entry.state, entry.reason = State.INACTIVE, why
            log.warning("The integration %s is off: %s", integration.name, why)
            log.debug("It has raised this.", exc_info=True)
            return False
        entry.state, entry.reason = State.ACTIVE, ""
        return True

    def _state(self, entry: _Entry) -> tuple[State, str]:
        return entry.integration.state() or (entry.state, entry.reason)

    def status(self) -> dict[str, Mapping[str, Any]]:
        """For each name: state, reason (why it is not active), execute_order and models."""
        with self._lock:
            out: dict[str, Mapping[str, Any]] = {}
            for name, entry in sorted(self._entries.items(), key=lambda item: item[1].order):
                state, reason = self._state(entry)
                out[name] = {
                    "state": str(state),
                    "reason": reason,
                    "execute_order": entry.order,
                    "models": [
                        {"purpose": m.purpose, "reference": m.reference}
                        for m in entry.integration.models
                    ],
                }
            for name, why in self._broken.items():
                out[name] = {"state": str(State.INACTIVE), "reason": why}
            return out

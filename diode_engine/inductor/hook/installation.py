"""What is installed of Diode in this process: one object, with its lock.

Inductor keeps its choices in a slot of which every thread has its own copy; the backward is
compiled in autograd's thread (`torch_internals/choices_slot.py`). Diode works on top of what was in
the slot, or beside what else is registered there, and restores the slot at the end.

`import diode_engine` only prepares this. The slot is taken when torch._inductor is imported, and
the model is loaded when something is compiled, a cache key is made or the status is asked for.
Earlier, it would initialise CUDA in a process that may be about to fork.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from diode_engine.choosing.stats import Stats
from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor.choosing.current import chooser_of
from diode_engine.inductor.guard import STOCK, Report, do_nothing, guard
from diode_engine.inductor.hook import options
from diode_engine.inductor.hook.compiled import forget_compiled
from diode_engine.inductor.hook.integration import IntegrationRegistry, State
from diode_engine.inductor.on_import import when_imported
from diode_engine.inductor.torch_internals import choices_slot
from diode_engine.inductor.torch_internals.choices_slot import ChoicesSlot

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices

log = logging.getLogger(__name__)

MATMUL = "matmul"  # the integration that the others in Inductor require
UNINSTALLED = "Diode's choices were uninstalled"
_NOT_YET = "nothing has been compiled yet"


def is_disabled() -> bool:
    """Return whether DIODE_DISABLE switches Diode off."""
    return os.environ.get("DIODE_DISABLE", "").lower() not in ("", "0", "false")


@dataclass(frozen=True)
class Decision:
    """What chooses, and what it did. `is_made` is False until the first compile asks."""

    choices: DiodeInductorChoices | None
    reason: str  # why there are none
    stats: Stats = field(default_factory=Stats)
    is_made: bool = True


class Installation:
    """The integrations, what is in Inductor's slot of choices, and what was there before."""

    def __init__(self) -> None:
        self.integrations = IntegrationRegistry()
        self.lock = self.integrations.lock
        self.decision = Decision(None, "Diode was not asked to install its choices", is_made=False)
        self._slot = ChoicesSlot(self.choices_of_thread)
        self._deciding = False

    def prepare(self) -> None:
        """Install Diode's choices when torch._inductor is imported; costs nothing before."""
        # A program that sets the options runs with Diode switched off as well.
        when_imported("torch._inductor.config", self._register_options)
        when_imported("torch._inductor.utils", options.understand_backend)
        if is_disabled():
            self._decide_on(None, "DIODE_DISABLE is set")
            return
        self.decision = replace(self.decision, reason=_NOT_YET)
        late = choices_slot.MODULE in sys.modules
        when_imported(choices_slot.MODULE, self._prepare_slot)
        if late:
            forget_compiled()

    def install(self, choices: DiodeInductorChoices) -> None:
        """Make every thread's compiles choose by these choices from now on. Raises IntegrationError
        where Inductor does not accept them."""
        with self.lock:
            self._register_options()
            before = self.decision
            self._decide_on(choices, "")
            try:
                self._take_slot()
            except IntegrationError:
                self.decision = before
                options.invalidate()
                raise
        if not self._deciding:  # else something is being compiled, by these choices already
            forget_compiled()

    def uninstall(self) -> None:
        """Give the slot back to whoever had it before, restore Inductor's functions, and cancel
        what `prepare` has prepared."""
        with self.lock:
            if self.decision.choices is not None:
                self.decision.choices.remove_preprocessing()
            self._decide_on(None, UNINSTALLED)
            if not self._slot.is_taken:
                return
            self.integrations.turn_off(requiring=MATMUL, reason=UNINSTALLED)
            self._slot.give_back()
        forget_compiled()

    def snapshot(self) -> tuple[Decision, bool]:
        """Return the present decision and whether Diode is in the slot, for `restore`."""
        with self.lock:
            return self.decision, self._slot.is_taken

    def restore(self, snapshot: tuple[Decision, bool]) -> None:
        """Make every thread's compiles choose as they did at the `snapshot`."""
        decision, was_there = snapshot
        if not was_there:
            self.uninstall()
        with self.lock:
            self._decide_on(decision.choices, decision.reason)
            self.decision = decision
            if was_there:
                self._take_slot()
        forget_compiled()

    def set_reason(self, reason: str) -> None:
        """Note why nothing is installed."""
        with self.lock:
            if self.decision.choices is None:
                self.decision = replace(self.decision, reason=reason)

    def state(self) -> tuple[State, str]:
        """Return the state of this thread's choices, and the reason for it."""
        choices, reason = self.decision.choices, self.decision.reason
        if choices is None:
            return State.WAITING if reason == _NOT_YET else State.INACTIVE, reason
        serving = choices_slot.present()
        if chooser_of(serving) is choices.diode_chooser:
            return State.ACTIVE, ""
        ours = choices.diode_chooser
        asked = choices_slot.asked_parts(serving)
        kind = type(next((part for part in asked if chooser_of(part) is not ours), serving))
        other = f"{kind.__module__}.{kind.__qualname__}"
        if any(chooser_of(part) is ours for part in choices_slot.parts_of(serving)):
            return State.INACTIVE, (
                f"Inductor asks {other} for kernels, which overrides the same method and was "
                "registered before the installed choices; register it after them, and Diode "
                "chooses among what it offers"
            )
        return State.INACTIVE, (
            f"another handler, {other}, serves this thread in place of the installed choices; call "
            "diode_engine.install_diode_choices() again, and Diode chooses among what that handler "
            "offers"
        )

    def decide(self) -> None:
        """Decide what `import diode_engine` has left open: turn on the integration `matmul`, or
        note why it is off. This is done when something is compiled, a cache key is made or the
        status is asked for."""
        with self.lock:
            if self.decision.is_made or self._deciding:
                return
            self._deciding = True
            self._turn_on_others()
            try:
                self.integrations.find(MATMUL).turn_on()
            except DiodeError as error:
                self._decide_on(None, str(error))
                log.warning("Diode is inactive, compiles are stock: %s", error)
            except Exception as error:
                self._decide_on(None, f"the model could not be loaded ({error!r})")
                log.warning("Diode is inactive, compiles are stock: loading its model failed.",
                            exc_info=True)  # fmt: skip
            else:
                if not self.decision.is_made:
                    self._decide_on(None, "another package's integration chooses")
            finally:
                self._deciding = False

    def _decide_on(self, choices: DiodeInductorChoices | None, reason: str) -> None:
        stats = self.decision.stats if choices is None else choices.diode_chooser.outcomes.stats
        self.decision = Decision(choices, reason, stats)
        if "torch._inductor.config" in sys.modules:
            options.invalidate()

    def _register_options(self) -> None:
        options.register(self.cache_key)

    def _prepare_slot(self) -> None:
        when_imported(choices_slot.module_of_place(), self._take_slot_first)

    def _take_slot_first(self) -> None:
        """Take the slot, unless something was decided in the meantime. Another thread that holds
        the lock for long decides, and takes the slot; to wait for it inside an import could last
        forever."""
        if not self.lock.acquire(timeout=1):
            return
        try:
            if not self.decision.is_made:
                self._take_slot()
        except Exception as error:
            why = f"this torch has no place for Diode's choices ({error!r})"
            self._decide_on(None, str(error) if isinstance(error, DiodeError) else why)
            raise
        finally:
            self.lock.release()

    def _take_slot(self) -> None:
        self._slot.take()
        # The last module that a compile imports: then all modules with a place are imported.
        when_imported("torch._inductor.compile_fx", self._turn_on_others)

    @guard("the places of Inductor that have no hook are not Diode's", stock=do_nothing)
    def _turn_on_others(self) -> None:
        """Turn on the integrations that require `matmul`. Where another thread holds the lock, it
        does that, or the first compile does; to wait for it inside an import could last forever."""
        if self.lock.acquire(blocking=False):
            try:
                if self._slot.is_taken:
                    self.integrations.integrate_all(requiring=MATMUL)
            finally:
                self.lock.release()

    def _keep_below(self) -> Any:
        """Make the choices below Diode's those of this thread, and return them."""
        with self.lock:
            return self._slot.keep(self._slot.below())

    def _report(self) -> Report | None:
        choices = self.decision.choices
        return None if choices is None else choices.diode_chooser.outcomes.report_failure

    @guard("a thread could not get Diode's choices", stock=_keep_below, report=_report)
    def choices_of_thread(self) -> Any:
        """Return the choices of a thread that has none yet, for Inductor's slot. It can be asked
        long before a compile, for example when another library registers its choices."""
        with self.lock:
            # Uninstalled since this thread found it in the slot, or not installed yet.
            if not self._slot.is_taken or self._slot.is_registering:
                return STOCK
            choices = self._slot.below()
            if not (self.decision.is_made or choices_slot.is_compiling() or _may_decide()):
                return self._slot.lend(choices)
            self.decide()
            if self.decision.choices is not None:
                choices = self.decision.choices.over(choices)
            return self._slot.keep(choices)

    @guard("the cache key could not be computed", stock=options.make_unrepeatable_key)
    def cache_key(self) -> str:
        """Return what Diode adds to Inductor's cache keys: "" while it is inactive. Before it is
        decided whether Diode is active, it is a value that never occurs again, so that nothing is
        cached under it. (Making a cache key initialises CUDA anyway, before it reads this.)"""
        if not self.decision.is_made and _may_decide():
            self.decide()
        if not self.decision.is_made:
            return options.make_unrepeatable_key()
        choices = self.decision.choices
        if choices is None:
            return ""
        from diode_engine.inductor.choosing.search import read_settings  # imports much of Inductor

        settings = (f"{name} {value}" for name, value in read_settings().items())
        return ", ".join([choices.uuid(), *settings])


def _may_decide() -> bool:
    import torch

    return torch.cuda.is_initialized() or not torch.cuda.is_available()


INSTALLATION = Installation()

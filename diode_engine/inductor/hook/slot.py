"""Diode in Inductor's slot of choices, for all threads.

Inductor keeps its choices in a slot of which every thread has its own copy, filled from a default;
the backward is compiled in autograd's thread. So the default is replaced, and the name under which
threads keep their copies is changed, so that threads with a copy ask again. Diode works on top of
what was in the slot, and puts it back at the end.

`import diode_engine` only arranges this. The slot is taken when torch._inductor is imported, and
the model is loaded when something is compiled, a cache key is made or the status is asked for.
Earlier, it would initialise CUDA in a process that may be about to fork.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_engine.choosing.stats import Stats
from diode_engine.errors import DiodeError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.choosing.current import chooser_of
from diode_engine.inductor.guard import STOCK, Report, do_nothing, guard
from diode_engine.inductor.hook import backends, config_keys, parts
from diode_engine.inductor.hook.compiled import forget_compiled
from diode_engine.inductor.hook.create import choices_by
from diode_engine.inductor.hook.state import State
from diode_engine.inductor.on_import import when_imported
from diode_engine.inductor.torch_internals import choices_slot
from diode_engine.inductor.torch_internals.choices_slot import Occupant

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices

log = logging.getLogger(__name__)

_NOT_YET = "nothing has been compiled yet"
_AUTOMATIC = ChoiceOptions(top_k_configs=1)  # what `import diode_engine` installs


class _Installed:
    """What is installed in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.below: Occupant | None = None  # what was in the slot; None while Diode is not there
        self.settled = False  # whether it is decided what `choices` is
        self.settling = False
        self.choices: DiodeInductorChoices | None = None
        self.reason = "Diode was not asked to install its choices"  # why there are none
        self.changes = 0
        self.attached = False  # whether the other parts are in their places
        self.stats = Stats()


_here = _Installed()


def disabled() -> bool:
    """Whether DIODE_DISABLE switches Diode off."""
    return os.environ.get("DIODE_DISABLE", "") not in ("", "0")


def arrange() -> None:
    """Installs Diode's choices when torch._inductor is imported; costs nothing before."""
    # A program that sets the options runs with Diode switched off as well.
    when_imported("torch._inductor.config", _register_options)
    when_imported("torch._inductor.utils", backends.attach)
    if disabled():
        _settle_as(None, "DIODE_DISABLE is set")
        return
    _here.reason = _NOT_YET
    late = choices_slot.MODULE in sys.modules
    when_imported(choices_slot.MODULE, _attach)
    if late:
        forget_compiled()


@dataclass(frozen=True)
class InPlace:
    """What chooses, and what it did."""

    taken: bool  # whether Diode is in Inductor's slot
    settled: bool  # whether it is decided what chooses
    choices: DiodeInductorChoices | None
    reason: str  # why there are none
    stats: Stats


def in_place() -> InPlace:
    """What is installed now."""
    with _here.lock:
        return InPlace(
            _here.below is not None, _here.settled, _here.choices, _here.reason, _here.stats
        )


def put_back(was: InPlace) -> None:
    """Makes every thread's compiles choose as they did when `was` was read."""
    if not was.taken:
        take_out()
    with _here.lock:
        _settle_as(was.choices, was.reason)
        _here.settled, _here.stats = was.settled, was.stats
        if was.taken:
            _take_slot()
    forget_compiled()


def put_in_place(choices: DiodeInductorChoices) -> None:
    """Makes every thread's compiles choose by these choices from now on."""
    with _here.lock:
        config_keys.register(_key)
        _settle_as(choices, "")
        _take_slot()
    forget_compiled()


def explain(reason: str) -> None:
    """Notes why nothing is installed."""
    with _here.lock:
        if _here.choices is None:
            _here.reason = reason


def state() -> tuple[State, str]:
    """The state of this thread's choices, and the reason for it."""
    with _here.lock:
        choices, reason = _here.choices, _here.reason
    if choices is None:
        return State.WAITING if reason == _NOT_YET else State.INACTIVE, reason
    serving = choices_slot.present()
    if chooser_of(serving) is choices.diode_chooser:
        return State.ACTIVE, ""
    kind = type(serving)
    return State.INACTIVE, (
        f"another handler, {kind.__module__}.{kind.__qualname__}, serves this thread in place of "
        "the installed choices; call diode_engine.install_diode_choices() again, and Diode chooses "
        "among what that handler offers"
    )


def take_out() -> None:
    """Gives the slot back to whoever had it before, and cancels what `arrange` has arranged."""
    with _here.lock:
        _settle_as(None, "Diode's choices were uninstalled")
        if _here.below is None:
            return
        parts.detach()
        _here.attached = False
        now = choices_slot.occupant()
        if now.default is _default:  # else somebody has taken the slot since, on top of Diode
            _move_foreign(now.key, _here.below.key)
            choices_slot.occupy(_here.below)
            _here.below = None
    forget_compiled()


def _register_options() -> None:
    config_keys.register(_key)


def _attach() -> None:
    """Takes the slot."""
    with _here.lock:
        if _here.settled:  # uninstalled, or installed with other options, in the meantime
            return
        try:
            _take_slot()
        except Exception as error:
            _settle_as(None, f"this torch has no place for Diode's choices ({error!r})")
            raise


def _take_slot() -> None:
    now = choices_slot.occupant()
    if now.default is not _default:
        _here.below = now
    assert _here.below is not None
    _move_foreign(now.key, _here.below.key)
    _here.changes += 1
    choices_slot.occupy(Occupant(_default, f"{_here.below.key}_diode{_here.changes}"))
    # The last module that a compile imports: then everything that the parts change is imported.
    when_imported("torch._inductor.compile_fx", _attach_parts)


@guard(
    "fast_autotune, grouped products, convolutions and padding are not Diode's", stock=do_nothing
)
def _attach_parts() -> None:
    """Installs the other parts, once."""
    if _here.below is None or _here.attached:  # uninstalled in the meantime
        return
    try:
        parts.attach()
    except ImportError:  # in the middle of Inductor's own imports: the first compile tries again
        log.debug("The parts of Diode are not in Inductor yet.", exc_info=True)
        return
    _here.attached = True


def _choices_below() -> Any:
    """This thread's choices without Diode's."""
    below = _here.below or choices_slot.occupant()
    choices = choices_slot.of_thread(below.key)
    if choices is None:
        choices = below.default()
        choices_slot.set_of_thread(below.key, choices)
    return choices


def _keep_below() -> Any:
    """Makes the choices below Diode's those of this thread."""
    with _here.lock:
        choices = _choices_below()
        choices_slot.set_of_thread(choices_slot.occupant().key, choices)
        return choices


def _report() -> Report | None:
    return None if _here.choices is None else _here.choices.diode_chooser.outcomes.failed


@guard("a thread could not get Diode's choices", stock=_keep_below, report=_report)
def _default() -> Any:
    """The choices of a thread that has none yet."""
    with _here.lock:
        if _here.below is None:  # uninstalled by another thread since this one found it in the slot
            return STOCK
        choices = _choices_below()
        settle()
        if _here.choices is not None:
            choices = _here.choices.over(choices)
        choices_slot.set_of_thread(choices_slot.occupant().key, choices)
        return choices


@guard("the cache key could not be computed", stock=config_keys.make_unrepeatable_key)
def _key() -> str:
    """What Diode adds to Inductor's cache keys: "" while it is inactive. Before it is known whether
    Diode is active, this is a value that never occurs again, so that nothing is cached under it.
    (Making a cache key initialises CUDA anyway, before it reads this.)"""
    if not _here.settled and _may_settle():
        settle()
    if not _here.settled:
        return config_keys.make_unrepeatable_key()
    if _here.choices is None:
        return ""
    # These import much of Inductor.
    from diode_engine.inductor.choosing.search import altered
    from diode_engine.inductor.lowering.candidates import tf32_in_convolutions_only

    told = [_here.choices.uuid()]
    if (why := altered()) is not None:  # kernels that another search has chosen are not Diode's
        told.append(why)
    if tf32_in_convolutions_only():  # it decides which convolutions become products
        told.append("TF32 in convolutions only")
    return ", ".join(told)


def _may_settle() -> bool:
    import torch

    return torch.cuda.is_initialized() or not torch.cuda.is_available()


def settle() -> None:
    """Decides what `import diode_engine` has left open: loads the model, or notes why it cannot.
    This is done when something is compiled, a cache key is made or the status is asked for."""
    with _here.lock:
        if _here.settled or _here.settling:
            return
        _here.settling = True
        _attach_parts()
        try:
            _settle_as(choices_by(_AUTOMATIC), "")
        except DiodeError as error:
            _settle_as(None, str(error))
            log.warning("Diode is inactive, compiles are stock: %s", error)
        except Exception as error:
            _settle_as(None, f"the model could not be loaded ({error!r})")
            log.warning("Diode is inactive, compiles are stock: loading its model failed.",
                        exc_info=True)  # fmt: skip
        finally:
            _here.settling = False


def _settle_as(choices: DiodeInductorChoices | None, reason: str) -> None:
    _here.choices, _here.reason, _here.settled = choices, reason, True
    if choices is not None:
        _here.stats = choices.diode_chooser.outcomes.stats
    if "torch._inductor.config" in sys.modules:
        config_keys.invalidate()


def _move_foreign(ours: str, theirs: str) -> None:
    """Moves this thread's choices from Diode's key to the other one, if they are not Diode's:
    somebody has set them while Diode was in the slot."""
    choices = choices_slot.of_thread(ours)
    if choices is not None and chooser_of(choices) is None:
        choices_slot.set_of_thread(theirs, choices)

"""The slot in Inductor that Diode's choices are in, for all threads.

Inductor keeps its choices in a slot of which every thread has its own copy, filled from a
default; the backward is compiled in autograd's thread. So it is the default that is replaced,
and the name under which threads keep their copies is changed, so that those which have one
ask again. What was in the slot is composed with while Diode is there, and back afterwards.

`import diode_engine` only arranges for that. The slot is taken when torch._inductor is
imported, and the model is loaded when something is compiled or a cache key is made: before,
it would initialise CUDA in a process that may be about to fork.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine.errors import DiodeError
from diode_engine.inductor.choosing import options
from diode_engine.inductor.choosing.stats import Stats
from diode_engine.inductor.hook import backends
from diode_engine.inductor.on_import import when_imported

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices
    from diode_engine.inductor.hook.integration import State

log = logging.getLogger(__name__)

_VIRTUALIZED = "torch._inductor.virtualized"
_NOT_YET = "nothing has been compiled yet"
_AUTOMATIC_TOP_K = 1


@dataclass
class _Slot:
    """What was in Inductor's slot before Diode."""

    default: Any
    key: str


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.slot: _Slot | None = None
        self.settled = False  # whether `choices` is decided
        self.settling = False
        self.choices: DiodeInductorChoices | None = None
        self.reason = "Diode was not asked to install its choices"
        self.changes = 0
        self.attached = False  # whether `fast` and `padding` are in their places
        self.stats = Stats()


held = _State()


def disabled() -> bool:
    """Whether DIODE_DISABLE switches Diode off."""
    return os.environ.get("DIODE_DISABLE", "") not in ("", "0")


def arrange() -> None:
    """Has Diode's choices installed once torch._inductor is imported; costs nothing before."""
    # A program that sets the options runs with Diode switched off as well.
    when_imported("torch._inductor.config", _register_options)
    when_imported("torch._inductor.utils", _register_backend)
    if disabled():
        _settle_as(None, "DIODE_DISABLE is set")
        return
    held.reason = _NOT_YET
    late = _VIRTUALIZED in sys.modules
    when_imported(_VIRTUALIZED, _attach)
    if late:
        _forget_compiled()


@dataclass(frozen=True)
class Before:
    """What was in place, for `put_back`."""

    slot: bool
    settled: bool
    choices: DiodeInductorChoices | None
    reason: str
    stats: Stats


def before() -> Before:
    """What is in place now."""
    with held.lock:
        return Before(held.slot is not None, held.settled, held.choices, held.reason, held.stats)


def put_back(was: Before) -> None:
    """Has every thread's compiles choose as then."""
    if not was.slot:
        take_out()
    with held.lock:
        _settle_as(was.choices, was.reason)
        held.settled, held.stats = was.settled, was.stats
        if was.slot:
            _take_slot()
    _forget_compiled()


def put_in_place(choices: DiodeInductorChoices) -> None:
    """Has every thread's compiles choose by these from now on."""
    with held.lock:
        options.register(_key)
        _settle_as(choices, "")
        _take_slot()
    _forget_compiled()


def explain(reason: str) -> None:
    """Why nothing is in place, where that is so."""
    with held.lock:
        if held.choices is None:
            held.reason = reason


def state() -> tuple[State, str]:
    """How far the choices are, and why not further."""
    from diode_engine.inductor.hook.integration import State

    with held.lock:
        if held.choices is not None:
            return State.ACTIVE, ""
        waiting = held.reason == _NOT_YET
        return State.WAITING if waiting else State.INACTIVE, held.reason


def take_out() -> None:
    """Leaves the slot to whoever had it before, and calls off what `arrange` has arranged."""
    with held.lock:
        _settle_as(None, "Diode's choices were uninstalled")
        if held.slot is None:
            return
        from diode_engine.inductor.hook import fast
        from diode_engine.inductor.hook.choices import remove_final_choice
        from diode_engine.inductor.padding import shape_padding as padding

        remove_final_choice()
        fast.detach()
        padding.detach()
        held.attached = False
        virtualized = sys.modules[_VIRTUALIZED]
        slot = virtualized._choices
        if slot._default is _default:  # else somebody has taken it since, on top of this
            _move_foreign(virtualized, slot._key, held.slot.key)
            slot._default, slot._key = held.slot.default, held.slot.key
            held.slot = None
    _forget_compiled()


def _register_options() -> None:
    """In the import of torch._inductor.config: must not raise."""
    try:
        options.register(_key)
    except Exception as error:  # noqa: BLE001  # what a torch to come does
        log.warning("Diode's options are not in this torch's Inductor: %r", error)


def _register_backend() -> None:
    """In the import of torch._inductor.utils: must not raise."""
    try:
        backends.attach()
    except Exception as error:  # noqa: BLE001
        log.warning('This torch does not take "DIODE" as a GEMM backend: %r', error)


def _attach() -> None:
    """Takes the slot, in the import of torch._inductor.virtualized: must not raise."""
    with held.lock:
        if held.settled:  # uninstalled, or installed with other options, in the meantime
            return
        try:
            _take_slot()
        except Exception as error:
            _settle_as(None, f"this torch has no place for Diode's choices ({error!r})")
            log.warning("Diode is inactive, compiles are stock: this torch has no place for it.",
                        exc_info=True)  # fmt: skip


def _take_slot() -> None:
    slot: Any = importlib.import_module(_VIRTUALIZED)._choices
    if slot._default is not _default:
        held.slot = _Slot(slot._default, slot._key)
        slot._default = _default
    assert held.slot is not None
    held.changes += 1
    slot._key = f"{held.slot.key}_diode{held.changes}"
    # what a compile imports last: with it all is there that these change
    when_imported("torch._inductor.compile_fx", _attach_parts)


def _attach_parts() -> None:
    """Once. In an import: must not raise."""
    if held.slot is None or held.attached:  # uninstalled in the meantime
        return
    try:
        from diode_engine.inductor.hook import fast
        from diode_engine.inductor.padding import shape_padding as padding

        fast.attach()
        padding.attach()
        held.attached = True
    except ImportError:  # in the middle of Inductor's own imports: the first compile tries again
        log.debug("The parts of Diode are not in Inductor yet.", exc_info=True)
    except Exception:
        held.attached = True
        log.warning(
            "This torch has no place for fast_autotune or for padding by the model.", exc_info=True
        )


def _default() -> Any:
    """The choices of a thread that has none yet."""
    with held.lock:
        virtualized = sys.modules[_VIRTUALIZED]
        slot = held.slot
        if slot is None:  # uninstalled by another thread since this one found it in the slot
            return virtualized._choices._default()
        choices = getattr(virtualized.threadlocal, slot.key, None)
        if choices is None:
            choices = slot.default()
            setattr(virtualized.threadlocal, slot.key, choices)
        _settle()
        if held.choices is not None:
            choices = _over(held.choices, choices)
        setattr(virtualized.threadlocal, virtualized._choices._key, choices)
        return choices


def _over(ours: DiodeInductorChoices, others: Any) -> Any:
    """Ours on top of the others, or these alone where they cannot be composed with."""
    try:
        return ours.over(others)
    except Exception as error:  # noqa: BLE001
        ours._diode.failed(f"{type(others).__name__} cannot be composed with", error)
        return others


def _key() -> str:
    """What Diode adds to Inductor's cache keys: "" while it is inactive. Must not raise: it is
    a read of Inductor's config. Where it cannot be told nothing is cached under it."""
    try:
        return _told_key()
    except Exception:
        log.debug("What Diode chooses by could not be told.", exc_info=True)
        return _never_again()


def _never_again() -> str:
    return f"unsettled {os.urandom(16).hex()}"


def _told_key() -> str:
    """Before it is known whether Diode is active this is a value that never comes again, so that
    nothing is cached under it. Making a cache key initialises CUDA by itself, before it looks
    here."""
    if not held.settled and _may_settle():
        _settle()
    if not held.settled:
        return _never_again()
    if held.choices is None:
        return ""
    from diode_engine.inductor.choosing.search import altered  # imports much of Inductor

    # Kernels that another search has chosen are not Diode's.
    return f"{held.choices.uuid()}{'' if (why := altered()) is None else f', {why}'}"


def _may_settle() -> bool:
    import torch

    return torch.cuda.is_initialized() or not torch.cuda.is_available()


def _settle() -> None:
    """Decides what `import diode_engine` has left open: loads the model, or says why not."""
    with held.lock:
        if held.settled or held.settling:
            return
        held.settling = True
        _attach_parts()
        try:
            from diode_engine.inductor.hook.create import create_diode_choices

            _settle_as(create_diode_choices(top_k_configs=_AUTOMATIC_TOP_K), "")
        except DiodeError as error:
            _settle_as(None, str(error))
            log.warning("Diode is inactive, compiles are stock: %s", error)
        except Exception as error:
            _settle_as(None, f"the model could not be loaded ({error!r})")
            log.warning("Diode is inactive, compiles are stock: loading its model failed.",
                        exc_info=True)  # fmt: skip
        finally:
            held.settling = False


def _settle_as(choices: DiodeInductorChoices | None, reason: str) -> None:
    held.choices, held.reason, held.settled = choices, reason, True
    if choices is not None:
        held.stats = choices._diode.stats
    if "torch._inductor.config" in sys.modules:
        options.invalidate()


def _move_foreign(virtualized: Any, ours: str, theirs: str) -> None:
    """Keeps choices that this thread was given on top of Diode's."""
    from diode_engine.inductor.hook.choices import DiodeInductorChoices

    choices = getattr(virtualized.threadlocal, ours, None)
    if choices is not None and not isinstance(choices, DiodeInductorChoices):
        setattr(virtualized.threadlocal, theirs, choices)


def _forget_compiled() -> None:
    """Graphs that were compiled under other choices must not survive."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    if _in_use_elsewhere(dynamo):
        log.warning(
            "Another thread compiles, or runs what torch.compile has compiled: functions that are "
            "compiled already keep their kernels. Call torch._dynamo.reset() when no thread does."
        )
        return
    dynamo.reset()


def _in_use_elsewhere(dynamo: Any) -> bool:
    """Whether another thread is in a function of torch.compile: torch's reset frees what that
    thread goes on with, and the process ends with a segmentation fault."""
    folder = str(Path(dynamo.__file__).parent)
    return any(
        frame.f_code.co_filename.startswith(folder)
        for thread, top in sys._current_frames().items()
        if thread != threading.get_ident()
        for frame, _ in traceback.walk_stack(top)
    )

"""Puts Diode's choices into torch.compile, for all threads, and takes them out again.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor import backends, options
from diode_engine.inductor.on_import import when_imported
from diode_engine.inductor.stats import Stats

if TYPE_CHECKING:
    from diode_engine.inductor.choices import DiodeInductorChoices
    from diode_engine.inductor.chooser import Predictor
    from diode_engine.inductor.integration import State

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


_state = _State()


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
    _state.reason = _NOT_YET
    late = _VIRTUALIZED in sys.modules
    when_imported(_VIRTUALIZED, _attach)
    if late:
        _forget_compiled()


def install_diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> bool:
    """Has every thread's compiles choose by these options from now on (they are described at
    DiodeInductorChoices); True where it does. `import diode_engine` has done it already, with
    top_k_configs=1.

    Where it cannot be (DIODE_DISABLE, torch older than 2.10, no GPU, no model for it) one
    line in the log says why, nothing changes, and the answer is False. Raises ModelError or
    RegistryError where `model_path` cannot be loaded.
    """
    if disabled():
        log.warning("Diode's choices are not installed: DIODE_DISABLE is set.")
        return False
    try:
        choices = create_diode_choices(
            model_path,
            device,
            top_k_configs,
            enable_fallback,
            performance_threshold,
            predictor=predictor,
        )
    except IntegrationError as error:
        log.warning("Diode's choices are not installed: %s", error)
        if _state.choices is None:
            _state.reason = str(error)
        return False
    put_in_place(choices)
    return True


@contextmanager
def diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> Iterator[bool]:
    """`install_diode_choices` for a while: yields what it returns, and at the end puts back
    what was chosen by before. Compiled graphs are forgotten at both ends."""
    with _state.lock:
        before = (_state.slot is not None, _state.settled, _state.choices, _state.reason,
                  _state.stats)  # fmt: skip
    installed = install_diode_choices(
        model_path,
        device,
        top_k_configs,
        enable_fallback,
        performance_threshold,
        predictor=predictor,
    )
    try:
        yield installed
    finally:
        if installed:
            _put_back(*before)


def _put_back(
    had_slot: bool,
    settled: bool,
    choices: DiodeInductorChoices | None,
    reason: str,
    stats: Stats,
) -> None:
    if not had_slot:
        uninstall_diode_choices()
    with _state.lock:
        _settle_as(choices, reason)
        _state.settled, _state.stats = settled, stats
        if had_slot:
            _take_slot()
    _forget_compiled()


def put_in_place(choices: DiodeInductorChoices) -> None:
    """Has every thread's compiles choose by these from now on."""
    with _state.lock:
        options.register(_key)
        _settle_as(choices, "")
        _take_slot()
    _forget_compiled()


def state() -> tuple[State, str]:
    """How far the choices are, and why not further."""
    from diode_engine.inductor.integration import State

    with _state.lock:
        if _state.choices is not None:
            return State.ACTIVE, ""
        waiting = _state.reason == _NOT_YET
        return State.WAITING if waiting else State.INACTIVE, _state.reason


def create_diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> DiodeInductorChoices:
    """Choices that are not installed yet: see DiodeInductorChoices, whose arguments and errors
    these are. Raises IntegrationError also where torch cannot be imported or has no Inductor."""
    try:
        from diode_engine.inductor.choices import DiodeInductorChoices
    except ImportError as error:
        raise IntegrationError(
            f"Diode needs torch 2.10 or newer with Inductor and Triton: {error}."
        ) from error
    return DiodeInductorChoices(
        model_path,
        device,
        top_k_configs,
        enable_fallback,
        performance_threshold,
        predictor=predictor,
    )


def uninstall_diode_choices() -> None:
    """Stock choices again, or those of whoever had the slot before; also calls off what
    `import diode_engine` has arranged. Does nothing where nothing is installed."""
    with _state.lock:
        _settle_as(None, "Diode's choices were uninstalled")
        if _state.slot is None:
            return
        from diode_engine.inductor import fast, padding
        from diode_engine.inductor.choices import remove_final_choice

        remove_final_choice()
        fast.detach()
        padding.detach()
        _state.attached = False
        virtualized = sys.modules[_VIRTUALIZED]
        slot = virtualized._choices
        if slot._default is _default:  # else somebody has taken it since, on top of this
            _move_foreign(virtualized, slot._key, _state.slot.key)
            slot._default, slot._key = _state.slot.default, _state.slot.key
            _state.slot = None
    _forget_compiled()


def get_stats() -> dict[str, int | float | str | bool]:
    """What Diode's choices have done in this process since they were installed.

    active, reason (why not active, else ""), model (its hash, "" if none), hardware (the GPU's
    name), trained_on (that of the model's); total_calls (of Inductor's hook for GEMMs),
    model_selections (GEMMs decided), benchmarked (of these, with several kernels left to
    Inductor to time), configs_considered, configs_filtered (could not have been launched),
    cache_hits (repeated problems), fusion_decided (another kernel was taken for what fusing
    saves), padding_decided (without shape_padding's benchmark), fallbacks and fallback_<reason>
    (GEMMs left to stock Inductor), passed_<op> (GEMMs of ops that there is no model for), seconds
    (spent choosing).
    """
    choices = _state.choices
    diode = choices._diode if choices is not None else None
    return {
        "active": choices is not None,
        "reason": _state.reason,
        "model": diode.predictor.identity if diode else "",
        "hardware": diode.hardware.name if diode else "",
        "trained_on": diode.trained_on if diode else "",
        **_state.stats.snapshot(),
    }


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


def get_prediction_stats() -> dict[str, int | float | None]:
    """total_predictions (GEMMs decided by the model since it was installed), avg_confidence (the
    mean probability that the choice is within 5 % of the best; None where the model cannot
    tell), benchmarked, cache_hits, fallbacks (as in get_stats), avg_ms (the mean time in the
    hook; None before its first call)."""
    return _state.stats.predictions()


def _attach() -> None:
    """Takes the slot, in the import of torch._inductor.virtualized: must not raise."""
    with _state.lock:
        if _state.settled:  # uninstalled, or installed with other options, in the meantime
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
        _state.slot = _Slot(slot._default, slot._key)
        slot._default = _default
    assert _state.slot is not None
    _state.changes += 1
    slot._key = f"{_state.slot.key}_diode{_state.changes}"
    # what a compile imports last: with it all is there that these change
    when_imported("torch._inductor.compile_fx", _attach_parts)


def _attach_parts() -> None:
    """Once. In an import: must not raise."""
    if _state.slot is None or _state.attached:  # uninstalled in the meantime
        return
    try:
        from diode_engine.inductor import fast, padding

        fast.attach()
        padding.attach()
        _state.attached = True
    except ImportError:  # in the middle of Inductor's own imports: the first compile tries again
        log.debug("The parts of Diode are not in Inductor yet.", exc_info=True)
    except Exception:
        _state.attached = True
        log.warning(
            "This torch has no place for fast_autotune or for padding by the model.", exc_info=True
        )


def _default() -> Any:
    """The choices of a thread that has none yet."""
    with _state.lock:
        virtualized = sys.modules[_VIRTUALIZED]
        slot = _state.slot
        if slot is None:  # uninstalled by another thread since this one found it in the slot
            return virtualized._choices._default()
        choices = getattr(virtualized.threadlocal, slot.key, None)
        if choices is None:
            choices = slot.default()
            setattr(virtualized.threadlocal, slot.key, choices)
        _settle()
        if _state.choices is not None:
            choices = _state.choices.over(choices)
        setattr(virtualized.threadlocal, virtualized._choices._key, choices)
        return choices


def _key() -> str:
    """What Diode adds to Inductor's cache keys: "" while it is inactive.

    Before that is known it is a value that never comes again, so that nothing is cached under
    it. Making a cache key initialises CUDA by itself, before it looks here.
    """
    if not _state.settled and _may_settle():
        _settle()
    if not _state.settled:
        return f"unsettled {os.urandom(16).hex()}"
    return "" if _state.choices is None else _state.choices.uuid()


def _may_settle() -> bool:
    import torch

    return torch.cuda.is_initialized() or not torch.cuda.is_available()


def _settle() -> None:
    """Decides what `import diode_engine` has left open: loads the model, or says why not."""
    with _state.lock:
        if _state.settled or _state.settling:
            return
        _state.settling = True
        _attach_parts()
        try:
            _settle_as(create_diode_choices(top_k_configs=_AUTOMATIC_TOP_K), "")
        except DiodeError as error:
            _settle_as(None, str(error))
            log.warning("Diode is inactive, compiles are stock: %s", error)
        except Exception as error:
            _settle_as(None, f"the model could not be loaded ({error!r})")
            log.warning("Diode is inactive, compiles are stock: loading its model failed.",
                        exc_info=True)  # fmt: skip
        finally:
            _state.settling = False


def _settle_as(choices: DiodeInductorChoices | None, reason: str) -> None:
    _state.choices, _state.reason, _state.settled = choices, reason, True
    if choices is not None:
        _state.stats = choices._diode.stats
    if "torch._inductor.config" in sys.modules:
        options.invalidate()


def _move_foreign(virtualized: Any, ours: str, theirs: str) -> None:
    """Keeps choices that this thread was given on top of Diode's."""
    from diode_engine.inductor.choices import DiodeInductorChoices

    choices = getattr(virtualized.threadlocal, ours, None)
    if choices is not None and not isinstance(choices, DiodeInductorChoices):
        setattr(virtualized.threadlocal, theirs, choices)


def _forget_compiled() -> None:
    """Graphs that were compiled under other choices must not survive."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()

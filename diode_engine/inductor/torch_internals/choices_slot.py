"""The place in torch of Inductor's choices: what makes those of a thread, and each thread's copy.

A thread without a copy under the slot's key asks the slot's default for its choices. Before torch
2.15 Diode replaces the default. From then on Inductor has a register: the default composes the
class in `inductor_choices_class` and the registered ones, and of these the first that overrides a
method answers it. A registration reaches the calling thread only; a new key makes all threads ask.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diode_engine.errors import IntegrationError
from diode_engine.inductor.torch_internals.versions import at_least
from diode_engine.inductor.torch_internals.wrapped_functions import HOOK

MODULE = "torch._inductor.virtualized"
REGISTERED = "diode_engine"  # Diode's name in Inductor's register
_CHOICES = "torch._inductor.choices"
_ASKS = "get_template_configs"  # the method that asks the hook


def module_of_place() -> str:
    """Return the module after whose import the slot can be taken. From torch 2.15 on that is the
    one with the register, which Inductor imports when it needs a thread's choices."""
    return _CHOICES if at_least("2.15") else MODULE


@dataclass(frozen=True)
class Occupant:
    """What is in the slot."""

    default: Callable[[], Any]  # makes the choices of a thread that has none
    key: str  # the name of the attribute in which a thread keeps them


class ChoicesSlot:
    """Inductor's slot, in which `make` makes a thread's choices from `take` to `give_back`. The
    choices that it makes have an attribute `diode_chooser`, or are what `below` returns."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._below: Occupant | None = None  # what was in the slot; None while Diode is not there
        self._changes = 0
        self.is_registering = False  # whether `make` is asked by its registration itself

    @property
    def is_taken(self) -> bool:
        """Return whether Diode is in the slot."""
        return self._below is not None

    def take(self) -> None:
        """Put `make` into the slot, and have all threads ask it, again where it is there. Raises
        AttributeError where this torch has no such slot, IntegrationError where Inductor's register
        does not work."""
        now, register = _occupant(), _register()
        if self._below is None or (register is None and now.default != self._make):
            self._below = now
        self._move_foreign(now.key, self._below.key)
        self._changes += 1
        key = f"{self._below.key}_diode{self._changes}"
        _occupy(Occupant(self._make if register is None else now.default, key))
        if register is None:
            return
        self.is_registering = True
        try:
            register.register_inductor_choices(REGISTERED, self._make)
        except Exception as error:
            _occupy(now)
            if REGISTERED not in _registered():
                self._below = None
            raise IntegrationError(
                f"Inductor could not make the choices that are registered or in its option "
                f"inductor_choices_class: {error}"
            ) from error
        finally:
            self.is_registering = False
        _forget(key)

    def give_back(self) -> None:
        """Restore what was in the slot, unless another default was put there since."""
        if self._below is None:
            return
        now, below, register = _occupant(), self._below, _register()
        if register is None and now.default != self._make:
            return
        self._move_foreign(now.key, below.key)
        self._below = None
        if register is None:
            _occupy(below)
            return
        try:
            register.unregister_inductor_choices(REGISTERED)
        finally:
            _forget(now.key)
            _occupy(Occupant(now.default, below.key))
            if not _is_foreign(_of_thread(below.key)):
                _forget(below.key)  # another class may have been registered since

    def below(self) -> Any:
        """Return this thread's choices without Diode's. From torch 2.15 on they are those that the
        program has set in this thread, or else Inductor's own: Inductor composes the rest."""
        below = self._below or _occupant()
        choices = _of_thread(below.key)
        if (register := _register()) is not None:
            return choices if _is_foreign(choices) else register.InductorChoices()
        if choices is None:
            choices = below.default()
            _set_of_thread(below.key, choices)
        return choices

    def keep(self, choices: Any) -> Any:
        """Make choices those of this thread, and return what `make` has to return. From torch 2.15
        on Inductor keeps what it composes of them."""
        if _register() is not None:
            return choices if _is_ours(choices) else combine(_WithKey, choices, {})
        _set_of_thread(_occupant().key, choices)
        return choices

    def lend(self, choices: Any) -> Any:
        """Return what `make` has to return to be asked again by `present`."""
        return choices if _register() is None else combine(_Lent, choices, {})

    def _move_foreign(self, ours: str, theirs: str) -> None:
        """Move this thread's choices from Diode's key to the other one, if they are not Diode's:
        somebody has set them while Diode was in the slot."""
        choices = _of_thread(ours)
        if ours != theirs and _is_foreign(choices):
            _set_of_thread(theirs, choices)


class _WithKey:
    """Beside the class of other choices: registered ones must have a cache key, and these do not
    depend on Diode."""

    diode_chooser = None

    def uuid(self) -> str:
        """Return the other choices' key, if they have one."""
        tell = getattr(super(), "uuid", None)
        return "" if tell is None else str(tell())


class _Lent(_WithKey):
    """Choices until Diode has decided whether it chooses."""


def combine(ours: type, other: Any, attributes: dict[str, Any]) -> Any:
    """Return choices of a class that is derived from `ours` and the other choices' class, has these
    attributes, and shares the other choices' state."""
    kind = type(ours.__name__, (ours, type(other)), attributes)
    both: Any = object.__new__(kind)
    both.__dict__ = other.__dict__
    return both


def present() -> Any:
    """Return the choices that this thread uses now."""
    slot = _slot()
    choices = slot._get_handler()
    if not any(isinstance(each, _Lent) for each in parts_of(choices)):
        return choices
    _forget(slot._key)
    return slot._get_handler()


def is_compiling() -> bool:
    """Return whether Inductor lowers a graph in this thread."""
    module: Any = importlib.import_module(MODULE)
    return not isinstance(module.V.graph, module.NullHandler)


def parts_of(choices: Any) -> tuple[Any, ...]:
    """Return the choices of which these are composed, in the order in which Inductor asks them."""
    composed = getattr(_register(), "_ComposedInductorChoices", ())
    return choices._choices if isinstance(choices, composed) else (choices,)


def asked_parts(choices: Any) -> tuple[Any, Any]:
    """Return the parts of a thread's choices that Inductor asks for kernels: the one that answers
    the method that asks the hook, and the one that answers the hook."""
    asks, hook = (getattr(getattr(choices, n, None), "__self__", choices) for n in (_ASKS, HOOK))
    return asks, hook


def whole_of(part: Any) -> Any:
    """Return this thread's choices if they are composed of `part` and others; else the part."""
    choices = _of_thread(_occupant().key)
    return choices if any(each is part for each in parts_of(choices)) else part


def method_below(kind: type, part: Any, name: str) -> Callable[..., Any]:
    """Return the method that answers where the class `kind` of these choices leaves a question: of
    the class below it, else of the next registered choices that override it, else Inductor's own.
    Inductor's asks the hooks of all parts."""
    own: Callable[..., Any] = getattr(super(kind, part), name)
    whole = whole_of(part)
    if whole is part:
        return own
    mro = type(part).__mro__
    below = mro[mro.index(kind) + 1 :]
    stock = inspect.getattr_static(sys.modules[_CHOICES].InductorChoices, name)
    if next(vars(each)[name] for each in below if name in vars(each)) is not stock:
        return own
    parts = parts_of(whole)
    later = parts[next(at for at, each in enumerate(parts) if each is part) + 1 :]
    # What another part's method asks is a hook of that part only, never Diode's.
    for each in () if name == _ASKS else later:
        if inspect.getattr_static(each, name) is not stock:
            return getattr(each, name)  # type: ignore[no-any-return]
    return stock.__get__(whole, type(whole))  # type: ignore[no-any-return]


def _is_ours(choices: Any) -> bool:
    return hasattr(choices, "diode_chooser")


def _is_foreign(choices: Any) -> bool:
    """Return whether somebody has set these choices in a thread: they are neither Diode's, nor made
    by Inductor's register."""
    if choices is None or _is_ours(choices):
        return False
    if (register := _register()) is None:
        return True
    factories = [*_registered().items(), ("", register.config.inductor_choices_class)]
    made = [make() for name, make in factories if make is not None and name != REGISTERED]
    kinds = [register.InductorChoices, register._ComposedInductorChoices, *map(type, made)]
    return type(choices) not in kinds


def _occupant() -> Occupant:
    """Return what is in the slot now. Raises AttributeError where this torch has no such slot."""
    slot = _slot()
    return Occupant(slot._default, slot._key)


def _occupy(by: Occupant) -> None:
    slot = _slot()
    slot._default, slot._key = by.default, by.key


def _of_thread(key: str) -> Any:
    """Return this thread's choices under a key; None where it has none."""
    return getattr(sys.modules[MODULE].threadlocal, key, None)


def _set_of_thread(key: str, choices: Any) -> None:
    setattr(sys.modules[MODULE].threadlocal, key, choices)


def _forget(key: str) -> None:
    """Have this thread ask the default again."""
    vars(sys.modules[MODULE].threadlocal).pop(key, None)


def _register() -> Any:
    """Return the module with Inductor's register; None before torch 2.15."""
    module = sys.modules.get(_CHOICES)
    return module if hasattr(module, "register_inductor_choices") else None


def _registered() -> dict[str, Callable[[], Any]]:
    register = _register()
    return {} if register is None else dict(register.registered_inductor_choices())


def _slot() -> Any:
    module: Any = importlib.import_module(MODULE)
    return module._choices

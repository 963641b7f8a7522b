"""The one place that replaces functions of torch: for a while, or until Diode restores them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

from diode_engine.errors import IntegrationError
from diode_engine.inductor.guard import FindReport, guard

_INHERITED = object()
Function = Callable[..., Any]


@contextmanager
def patch_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """While the block runs, the attribute `name` of a module, a class or an object is `value`."""
    # Read from the owner's dictionary: getattr could return a bound method, or an inherited one.
    before = vars(owner).get(name, _INHERITED)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


class Patches:
    """Functions of torch that Diode has wrapped, until it restores them. Safe to use from any
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the owner's id and the name: owner, ours, theirs. (An owner may not be hashable.)
        self._functions: dict[tuple[int, Any], tuple[Any, Function, Function]] = {}

    def wrap(self, owner: Any, name: Any, wrapper: Callable[[Function], Function]) -> None:
        """Replace a function by what `wrapper` makes of it, once.

        `owner` is a module, class or object with the attribute `name`, or a dictionary with the key
        `name`. Raises AttributeError or KeyError where it has no such function.
        """
        with self._lock:
            if (id(owner), name) not in self._functions:
                theirs = _read(owner, name)
                ours = functools.wraps(theirs)(wrapper(theirs))
                self._functions[id(owner), name] = owner, ours, theirs
                _write(owner, name, ours)

    def guard(
        self, owner: Any, name: Any, ours: Function, what: str, report: FindReport | None = None
    ) -> None:
        """Have `ours` answer in a function's place, under a guard: where it raises or returns
        STOCK, torch's function answers. `what` and `report` are those of `guard.guard`; the others
        are as in `wrap`."""
        self.wrap(owner, name, lambda theirs: guard(what, stock=theirs, report=report)(ours))

    def restore(self) -> None:
        """Put back the functions that were there, except where somebody has replaced Diode's."""
        with self._lock:
            for (_, name), (owner, ours, theirs) in self._functions.items():
                if _read(owner, name) is ours:
                    _write(owner, name, theirs)
            self._functions.clear()


def _read(owner: Any, name: Any) -> Any:
    return owner[name] if isinstance(owner, dict) else getattr(owner, name)


def _write(owner: Any, name: Any, function: Function) -> None:
    if isinstance(owner, dict):
        owner[name] = function
    else:
        setattr(owner, name, function)


class _DummyCalled(BaseException):
    """Raised by a dummy. It is no Exception, so that no code of torch handles it."""


def check_called(owner: Any, name: str, call: Callable[[], Any]) -> None:
    """Check that `call` calls the function `name` of a module or class: a dummy takes its place
    meanwhile. Raises IntegrationError where it does not, or there is no such function."""

    def dummy(*_: Any, **__: Any) -> Any:
        raise _DummyCalled

    place = f"{owner.__name__}.{name}"
    if not hasattr(owner, name):
        raise IntegrationError(f"this torch has no {place}.")
    try:
        with patch_attribute(owner, name, dummy):
            call()
    except _DummyCalled:
        return
    except Exception as error:
        raise IntegrationError(
            f"this torch does not call {place} as Diode expects ({type(error).__name__}: {error})."
        ) from error
    raise IntegrationError(f"this torch does not call {place}.")


def is_named_in(code: Any, name: str) -> bool:
    """Return whether the code of a function, or of one that a module has, names another function or
    attribute."""
    if isinstance(code, ModuleType):
        functions = [each for each in vars(code).values() if isinstance(each, FunctionType)]
        return any(is_named_in(each, name) for each in functions)
    if isinstance(code, FunctionType):
        code = inspect.unwrap(code).__code__
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return name in code.co_names or any(is_named_in(each, name) for each in inner)

"""Replaces parts of torch: for a while, or until they are given back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_INHERITED = object()


@contextmanager
def patch_attribute(owner: Any, name: str, by: Any) -> Iterator[None]:
    """While it is open, the attribute `name` of a module, a class or an object is `by`."""
    # Read from the owner's dictionary: getattr could return a bound method, or an inherited one.
    before = vars(owner).get(name, _INHERITED)
    setattr(owner, name, by)
    try:
        yield
    finally:
        if before is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


class Patches:
    """Functions of torch's modules and objects that Diode has wrapped, until it gives them back."""

    def __init__(self) -> None:
        # By the owner's id and the name: owner, ours, theirs. (An owner may not be hashable.)
        self._functions: dict[
            tuple[int, str], tuple[Any, Callable[..., Any], Callable[..., Any]]
        ] = {}

    def wrap(
        self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Replaces the owner's function by what `wrapper` makes of it, once. Raises AttributeError
        where the owner has no such function."""
        if (id(owner), name) in self._functions:
            return
        theirs = getattr(owner, name)
        ours = functools.wraps(theirs)(wrapper(theirs))
        self._functions[id(owner), name] = owner, ours, theirs
        setattr(owner, name, ours)

    def give_back(self) -> None:
        """Restores what was there, except what somebody has replaced since."""
        for (_, name), (owner, ours, theirs) in self._functions.items():
            if getattr(owner, name) is ours:
                setattr(owner, name, theirs)
        self._functions.clear()

"""Replaces a part of torch for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INHERITED = object()


@contextmanager
def replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
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

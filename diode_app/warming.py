"""What is done ahead, while there is nothing else to do, so that the first key to a screen finds
its modules imported and its styles parsed."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.widget import Widget

from diode_app.data.threads import in_thread
from diode_app.screens.places import modules

_REST_SECONDS = 0.02
_FIRST = "diode_app.screens.runs"  # what most others need comes with it


async def warm(stylesheet: Stylesheet, is_busy: Callable[[], bool]) -> None:
    """Imports the modules of all screens, one after the other in a thread, and parses the styles
    of their widgets; each step waits until the dashboard is not busy, since Python runs one thread
    at a time. Then the garbage collector leaves all of it alone: a full collection takes a tenth of
    a second."""
    for name in modules():
        if name != _FIRST:  # this one is imported while the first figures are read, without waiting
            await _rest(is_busy)
        await in_thread(partial(importlib.import_module, name), "imports")
    for widget in _below(Widget):
        await _rest(is_busy)
        # Textual does this when the first widget of a class is made. It is a method of instances,
        # so `given` has what it reads of one.
        given = SimpleNamespace(_node_bases=widget._css_bases(widget))
        for read_from, css, tie_breaker, scope in DOMNode._get_default_css(given):  # type: ignore[arg-type]
            stylesheet._parse_rules(css, read_from, True, tie_breaker, scope)  # keeps them
    gc.freeze()


async def _rest(is_busy: Callable[[], bool]) -> None:
    await asyncio.sleep(0)
    while is_busy():
        await asyncio.sleep(_REST_SECONDS)


def _below(widget: type[Widget]) -> Iterator[type[Widget]]:
    for below in widget.__subclasses__():
        yield below
        yield from _below(below)

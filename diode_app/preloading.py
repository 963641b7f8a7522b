"""Imports the modules of all screens while there is nothing else to do, so that the first key to a
screen finds them imported."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable
from functools import partial

from diode_app.data.threads import in_thread
from diode_app.screens.places import modules

_REST_SECONDS = 0.02
_FIRST = "diode_app.screens.runs"  # what most others need comes with it


async def import_screens(is_busy: Callable[[], bool]) -> None:
    """Import the modules of all screens, one after the other in a thread; each waits until the
    dashboard is not busy, since Python runs one thread at a time. Then the garbage collector leaves
    all of it alone: a full collection takes a tenth of a second."""
    for name in modules():
        await asyncio.sleep(0)
        # The first one is imported while the first figures are read, without waiting.
        while name != _FIRST and is_busy():
            await asyncio.sleep(_REST_SECONDS)
        await in_thread(partial(importlib.import_module, name), "imports")
    gc.freeze()

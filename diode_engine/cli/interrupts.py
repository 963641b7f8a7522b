"""Ctrl-C, `kill` and a closed terminal end a command in order, keeping what is there."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

ORDERLY_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupts:
    """Raises KeyboardInterrupt at the first signal. Impatient ones after it would interrupt what
    is being put in order, and are not heard before it has had ORDERLY_SECONDS."""

    def __init__(self) -> None:
        self._first = -ORDERLY_SECONDS

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._first >= ORDERLY_SECONDS:
            self._first = now
            raise KeyboardInterrupt


def install() -> None:
    """In the main thread, where Python hears signals. One that is ignored, as SIGHUP is under
    nohup, stays ignored."""
    if threading.current_thread() is threading.main_thread():
        handler = _Interrupts()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

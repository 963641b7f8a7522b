"""Ctrl-C, `kill` and a closed terminal end a command in order and keep what is finished."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

ORDERLY_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupts:
    """Raises KeyboardInterrupt at the first signal. Later signals would interrupt the clean-up, so
    they are ignored until it has had ORDERLY_SECONDS."""

    def __init__(self) -> None:
        self._first = -ORDERLY_SECONDS

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._first >= ORDERLY_SECONDS:
            self._first = now
            raise KeyboardInterrupt


def install() -> None:
    """Installs the handlers in the main thread, where Python receives signals. A signal that is
    ignored, as SIGHUP is under nohup, stays ignored."""
    if threading.current_thread() is threading.main_thread():
        handler = _Interrupts()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

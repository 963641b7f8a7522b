"""Ctrl-C, `kill` and a closed terminal end a command in order and keep what is finished."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

ORDERLY_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Makes the first signal raise KeyboardInterrupt in the main thread, where Python receives
    signals. Later ones would interrupt the clean-up, so they are ignored until it has had
    ORDERLY_SECONDS. A signal that is ignored, as SIGHUP is under nohup, stays ignored."""
    first = -ORDERLY_SECONDS

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first >= ORDERLY_SECONDS:
            first = now
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handle)

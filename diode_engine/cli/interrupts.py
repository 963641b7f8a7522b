"""Ctrl-C, `kill` and a closed terminal end a command in order and keep what is finished."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

ORDERLY_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _make_handler() -> Callable[[int, FrameType | None], None]:
    """Return a handler that raises KeyboardInterrupt at the first signal. Later signals would
    interrupt the clean-up, so they are ignored until it has had ORDERLY_SECONDS."""
    first = -ORDERLY_SECONDS

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first >= ORDERLY_SECONDS:
            first = now
            raise KeyboardInterrupt

    return handle


def install() -> None:
    """Installs the handlers in the main thread, where Python receives signals. A signal that is
    ignored, as SIGHUP is under nohup, stays ignored."""
    if threading.current_thread() is threading.main_thread():
        handler = _make_handler()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

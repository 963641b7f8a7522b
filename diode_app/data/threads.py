"""Blocking work in threads for which nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], name: str = "work") -> T:
    """Do the work in a new thread and return its result, or raise its error. The
    thread is a daemon: where the caller is cancelled or the process ends, neither waits for it
    (asyncio's own threads are joined when a loop closes)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # the caller was cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future

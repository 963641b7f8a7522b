"""Processes that do something to a store or a registry, to be killed or watched at it.

They are forked from a server that has imported all (`preloaded`), so that they begin at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.soak.children", "tests.soak.preloaded"])
PATIENCE = 120.0  # seconds, for what should end

Work = Callable[..., Any]


def _child(say: Connection, home: str, limit: int | None, work: Work, arguments: Any) -> None:
    os.environ["DIODE_HOME"] = home
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    say.send("begin")
    say.send(work(*arguments))


def start(
    work: Work, *arguments: Any, home: object, limit: int | None = None
) -> tuple[Any, Connection]:
    """A child that has begun its work, and the connection over which it answers. No file may
    become longer than `limit` bytes there, as on a disk that is full."""
    hear, say = _CONTEXT.Pipe(duplex=False)
    child = _CONTEXT.Process(target=_child, args=(say, str(home), limit, work, arguments))
    child.start()
    say.close()
    assert hear.recv() == "begin"
    return child, hear


def done(work: Work, *arguments: Any, home: object, limit: int | None = None) -> tuple[Any, float]:
    """What a child answers that does the work to its end, and how many seconds it took."""
    child, hear = start(work, *arguments, home=home, limit=limit)
    began = time.perf_counter()
    with hear:
        try:
            answer = hear.recv()
        except EOFError:
            child.join(PATIENCE)
            raise AssertionError(f"the child ended with {child.exitcode}") from None
        took = time.perf_counter() - began
    child.join(PATIENCE)
    assert child.exitcode == 0
    return answer, took


def killed(work: Work, *arguments: Any, home: object, after: float) -> bool:
    """Has a child do the work and kills it so many seconds after it began (SIGKILL); False where
    it was done before."""
    child, hear = start(work, *arguments, home=home)
    with hear:
        child.join(after)
        child.kill()
        child.join(PATIENCE)
        with contextlib.suppress(EOFError, OSError):
            hear.recv()
            return False
    return True

"""Holds the sessions of a collection, in coroutines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from diode_engine.collect.executor import (
    Answer,
    BatchRequest,
    Host,
    Refusal,
    Request,
    Session,
    Sessions,
    SpaceRequest,
)

STEP_SECONDS = 1.0  # how long `step` waits for news
MAX_LOSSES = 3  # of processes that had the same request; then it is given up

Ask = Callable[[SpaceRequest | BatchRequest], Awaitable[Answer]]


@dataclass(eq=False)
class _Held:
    """A session with its open request, and how many processes were lost that had it."""

    session: Session
    request: Request
    losses: int = 0


class SessionRunner:
    """Coroutines, of which some hold sessions. They run in the thread that calls `step`, so that
    they need no locks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._error: BaseException | None = None
        self._sessions: Sessions = lambda _: None
        self._exhausted = False
        self._open = 0  # sessions that a worker holds
        self._orphans: list[_Held] = []  # whose processes were lost
        self._orphaned = asyncio.Event()

    def begin(self, sessions: Sessions) -> None:
        """Gives these sessions to the workers."""
        self._sessions = sessions

    @property
    def has_waiting(self) -> bool:
        """Whether there may be sessions that no worker has."""
        return not self._exhausted or bool(self._orphans)

    @property
    def is_busy(self) -> bool:
        """Whether there may be sessions that have not ended."""
        return self.has_waiting or self._open > 0

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs the coroutine, too. `step` raises the error that it raises."""
        self._loop.create_task(coroutine).add_done_callback(self._note_end)

    def step(self) -> None:
        """Runs the coroutines until something has happened that the caller should see, for at most
        STEP_SECONDS. Raises the error that a coroutine has raised."""
        self._loop.run_until_complete(self._wait_for_news())
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Cancels the coroutines."""
        if running := asyncio.all_tasks(self._loop):
            for task in running:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(running))
        self._loop.close()

    async def work(self, host: Host, ask: Ask) -> None:
        """Holds sessions by a worker on this host, one after the other; `ask` returns the worker's
        answers. Where it raises an error, another worker goes on with the session."""
        while True:
            held = await self._next(host)
            self._open += 1
            try:
                await self._hold(held, ask)
            except BaseException:
                held.losses += 1
                self._orphans.append(held)
                self._orphaned.set()
                raise
            finally:
                self._open -= 1
                self._news.set()

    async def _next(self, host: Host) -> _Held:
        while not self._orphans:
            session = self._sessions(host)
            if session is None:
                self._exhausted = True
                self._news.set()
                self._orphaned.clear()
                await self._orphaned.wait()
            elif (request := next(session, None)) is not None:
                return _Held(session, request)
        return self._orphans.pop()

    async def _hold(self, held: _Held, ask: Ask) -> None:
        """Answers the session's requests to its end."""
        while True:
            answer: Answer = None
            if isinstance(held.request, list):
                ordered = map(asyncio.wrap_future, held.request)
                await asyncio.gather(*ordered, return_exceptions=True)
            elif held.losses < MAX_LOSSES:
                answer = await ask(held.request)
            else:
                answer = Refusal(f"{held.losses} processes were lost over it")
            try:
                held.request, held.losses = held.session.send(answer), 0
            except StopIteration:
                return
            self._news.set()

    async def _wait_for_news(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), STEP_SECONDS)
        self._news.clear()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
        self._news.set()

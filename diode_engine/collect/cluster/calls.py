"""Calls of processes in a Ray cluster, whose answers are all handled in one thread."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from diode_engine import ray_connection
from diode_engine.errors import CollectionError

CLOSE_SECONDS = 15.0  # for processes to end their workers


class RayCalls:
    """The connection to the cluster at `address` (as Ray takes it: host:port, or auto).

    Ray reports answers in threads of its own. Here each answer becomes a function that waits until
    `step` calls it, one at a time, in the thread of the collection. So the code that handles
    answers needs no locks.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._owns_connection = False

    def connect(self) -> None:
        """Raises CollectionError where Ray is not installed, or there is no such cluster."""
        self.ray = ray_connection.imported("Collecting", CollectionError)
        if ray_connection.connect(self.ray, self.address, CollectionError):
            self._owns_connection = True

    def disconnect(self) -> None:
        """Ends the connection, unless this process had it before `connect`."""
        if self._owns_connection:
            self.ray.shutdown()
            self._owns_connection = False

    def later(self, reference: Any, then: Callable[[Future[Any]], None]) -> None:
        """`step` calls `then` with the answer that Ray's `reference` stands for, when it is
        there."""
        reference.future().add_done_callback(lambda future: self.put(partial(then, future)))

    def put(self, call: Callable[[], None]) -> None:
        """`step` makes this call."""
        self._answers.put(call)

    def step(self, seconds: float) -> None:
        """Handles the next answer; waits for one at most so many seconds. Raises what the handling
        raises."""
        with contextlib.suppress(queue.Empty):
            self._answers.get(timeout=seconds)()

    def is_own_error(self, error: BaseException) -> bool:
        """Whether the called code raised the error; its process is still there. Any other error
        means that the process is lost."""
        return isinstance(error, self.ray.exceptions.RayTaskError)

    def close(self, actors: Sequence[Any]) -> None:
        """Lets these processes end their workers, which takes CLOSE_SECONDS at most."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            closed = [actor.close.remote() for actor in actors]
            if closed:
                self.ray.wait(closed, num_returns=len(closed), timeout=CLOSE_SECONDS)

    def end(self, actor: Any) -> None:
        """Ends a process at once."""
        with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
            self.ray.kill(actor, no_restart=True)

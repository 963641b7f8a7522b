"""The replay of `replay_worker.py` in the collection's own process, without workers: it shows the
processor time of a collection without an executor."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
import replay_worker

from diode_engine.collect.executor import (
    Answer,
    Conversation,
    Conversations,
    Host,
    Offer,
    Offered,
    Request,
    Timed,
)
from diode_engine.collect.processes import protocol
from diode_engine.collect.timed_rows import timed_rows


class ReplayExecutor:
    """`workers` conversations on each of so many GPUs, of which one at a time is timed. `seconds`
    is the processor time of the replay itself, which is not part of the collection's."""

    def __init__(self, gpus: int, workers: int, file: Path, slower: float) -> None:
        self.gpus = range(gpus)
        self.seconds = 0.0
        self._workers, self._slower = workers, slower
        self._known = msgpack.unpackb(file.read_bytes())
        self._timings = {
            key: {name: protocol.timing(each) for name, each in problem["timings"].items()}
            for key, problem in self._known.items()
        }

    spec: Mapping[str, Any] = {"replay": True}

    def __enter__(self) -> ReplayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compilers(self, _: object) -> None:
        return None

    def states(self) -> Mapping[int, Any]:
        return {}

    def run(self, conversations: Conversations) -> Iterator[None]:
        free = [time.monotonic()] * len(self.gpus)
        going: list[tuple[float, int, int, Conversation, Answer]] = []
        order = itertools.count()

        def ask(gpu: int, conversation: Conversation, request: Request) -> None:
            began = time.process_time()
            answer: Answer
            when = time.monotonic()
            if isinstance(request, Offer):
                offered = self._known[request.problem.key]["offered"]
                answer = Offered(offered, protocol.pack_candidates([]))
            else:
                known = self._timings[request.problem.key]  # type: ignore[union-attr]
                asked = request.candidates  # type: ignore[union-attr]
                answer = Timed(timed_rows((i, known[c.key]) for i, c in enumerate(asked)), gpu)
                busy = len(asked) * replay_worker.SECONDS_EACH * self._slower
                free[gpu] = when = max(free[gpu], when) + busy
            heapq.heappush(going, (when, next(order), gpu, conversation, answer))
            self.seconds += time.process_time() - began

        def begin(gpu: int) -> None:
            host = Host(gpu, f"replay-{gpu}", replay_worker.ENVIRONMENT)
            if (conversation := conversations(host)) is not None:
                ask(gpu, conversation, next(conversation))

        for gpu in self.gpus:
            for _ in range(self._workers):
                begin(gpu)
        while going:
            when, _, gpu, conversation, answer = heapq.heappop(going)
            time.sleep(max(0.0, when - time.monotonic()))
            try:
                ask(gpu, conversation, conversation.send(answer))
            except StopIteration:
                begin(gpu)
            yield

"""Requests to one worker process: a request becomes messages to the worker, and the worker's
messages become the answer."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass

from diode_engine.collect.executor import (
    BatchAnswer,
    BatchRequest,
    Refusal,
    SpaceAnswer,
    SpaceRequest,
)
from diode_engine.collect.processes.protocol import Message, timing
from diode_engine.core.timing import Failure, Timing

log = logging.getLogger(__name__)

MAX_DEATHS = 4  # of workers on one problem; then the problem is given up


@dataclass(frozen=True)
class WorkerDied:
    """Is sent in place of a worker's message. A new worker, on this GPU, gets the next request."""

    timed_out: bool  # it was ended, since it sent nothing until its deadline
    gpu: int


# A generator that yields messages for the worker, or None to wait for the worker's next message. It
# is sent the worker's messages, each with the number of the worker's GPU as "gpu", and returns the
# answer.
Exchange = Generator[Message | None, Message | WorkerDied, SpaceAnswer | Refusal | BatchAnswer]


def ask(request: SpaceRequest | BatchRequest, *, in_turn: bool) -> Exchange:
    """Asks a worker. With `in_turn` the worker times the candidates of a batch a few launches of
    each in turn, and does not say which one it is timing."""
    if isinstance(request, SpaceRequest):
        return _ask_space(request)
    return _BatchTiming(request, in_turn).ask()


def _ask_space(request: SpaceRequest) -> Exchange:
    answer = yield {"problem": request.problem.to_dict()}
    if isinstance(answer, WorkerDied):
        return Refusal("its worker hung" if answer.timed_out else "its worker died", 1)
    if "refused" in answer:
        return Refusal(answer["refused"])
    return SpaceAnswer(answer["offered"], answer["default"])


_Rows = list[tuple[int, Timing]]
_RowsExchange = Generator[Message | None, Message | WorkerDied, _Rows]


class _BatchTiming:
    """The messages for one BatchRequest, and what was learned from the answers so far."""

    def __init__(self, request: BatchRequest, in_turn: bool) -> None:
        self._problem = request.problem
        self._candidates = request.candidates
        self._in_turn = in_turn
        self._gpu = -1
        self._lost = 0

    def ask(self) -> Exchange:
        timings = yield from self._ask(list(range(len(self._candidates))))
        return BatchAnswer(tuple(timings), self._gpu, workers_lost=self._lost)

    def _one_by_one(self, places: list[int]) -> _RowsExchange:
        """Asks for each candidate alone, to find out which one ended the worker that timed all of
        them in turn."""
        timings: _Rows = []
        deaths = 0
        for place in places:
            more = yield from self._ask([place])
            timings += more
            deaths += any(t.failure in (Failure.CRASH, Failure.TIMEOUT) for _, t in more)
            if deaths == MAX_DEATHS:
                break
        return timings

    def _ask(self, places: list[int]) -> _RowsExchange:
        """Asks for these candidates of the batch, and for the rest of them again if the worker
        dies."""
        timings: _Rows = []
        begun: int | None = None
        answer = yield {
            "problem": self._problem.to_dict(),
            "candidates": [self._candidates[place].to_dict() for place in places],
        }
        while True:
            self._gpu = answer.gpu if isinstance(answer, WorkerDied) else answer["gpu"]
            if isinstance(answer, WorkerDied):
                self._lost += 1
                if begun is None and not timings:
                    if self._in_turn and len(places) > 1:
                        return (yield from self._one_by_one(places))
                    begun = 0  # it died before it began: blame the first, so as not to ask forever
                if begun is not None:
                    reason = Failure.TIMEOUT if answer.timed_out else Failure.CRASH
                    timings.append((places[begun], Timing(failure=reason)))
                if rest := places[len(timings) :]:
                    timings += yield from self._ask(rest)
                return timings
            if "done" in answer or "refused" in answer:
                return timings
            if "begin" in answer:
                begun = answer["begin"]
            elif "timing" in answer:
                place = places[answer["timing"]]
                timings.append((place, timing(answer)))
                if answer["failure"] is not None:
                    candidate = self._candidates[place]
                    log.info("%s on %s: %s", candidate, self._problem, answer["reason"])
                begun = None
            answer = yield None

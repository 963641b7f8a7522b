"""The conversations of a collection with the workers on a cluster's GPUs.

The conversations stay in this process. Where a GPU's process is lost, alone or with its machine,
the requests that it had are given to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from diode_engine.collect.cluster.calls import RayCalls
from diode_engine.collect.cluster.compilers import RayCompilers, RayOrder
from diode_engine.collect.cluster.gpus import RayGpu
from diode_engine.collect.cluster.hosts import Missing
from diode_engine.collect.cluster.messages import RequestPacker, is_answer, unpack_timed
from diode_engine.collect.executor import (
    READY,
    Answer,
    Batch,
    Conversation,
    Conversations,
    Offer,
    Pending,
    Refused,
    Request,
    Timed,
)
from diode_engine.core.hardware import Environment

MAX_LOSSES = 3  # of processes that had the same request; then it is given up


@dataclass(eq=False)
class _ConversationState:
    """A conversation and its open request; how many processes were lost that had this request; and
    whether binaries that it needs were lost, so that they must be compiled again."""

    conversation: Conversation
    request: Request
    losses: int = 0
    compile_again: bool = False


@dataclass(eq=False)
class _Slot:
    """One worker of a GPU, and the conversation that it has. `place` is the worker's number."""

    gpu: RayGpu
    place: int
    at: _ConversationState | None = None


class RayConversations:
    """Conversations with `workers` workers on each GPU.

    `compilers` are those of each environment, which conversations have ordered their classes from.
    `failed` is told of an error of a GPU's process, `answered_nonsense` of an answer that cannot be
    one; both end in a call of `lost`.
    """

    def __init__(
        self,
        calls: RayCalls,
        compilers: Mapping[Environment, RayCompilers],
        *,
        workers: int,
        failed: Callable[[RayGpu, BaseException], None],
        answered_nonsense: Callable[[RayGpu], None],
    ) -> None:
        self._calls = calls
        self._compilers = compilers
        self._workers = workers
        self._failed = failed
        self._answered_nonsense = answered_nonsense
        self._slots: list[_Slot] = []
        self._orphans: list[_ConversationState] = []  # whose GPUs were lost
        self._exhausted = False
        self._pack = RequestPacker()

    def begin(self, conversations: Conversations) -> None:
        """Gives these conversations to the workers that are ready from now on."""
        self._conversations = conversations
        self._exhausted = False

    @property
    def waiting(self) -> bool:
        """Whether there may be conversations that no worker has."""
        return not self._exhausted or bool(self._orphans)

    @property
    def unfinished(self) -> bool:
        return self.waiting or any(slot.at is not None for slot in self._slots)

    def started(self, gpu: RayGpu) -> None:
        """To be called when a GPU can be used."""
        slots = [_Slot(gpu, place) for place in range(self._workers)]
        self._slots += slots
        for slot in slots:
            self._begin(slot)

    def lost(self, gpu: RayGpu) -> None:
        """To be called when a GPU cannot be used any more: others go on with its conversations."""
        for slot in self._slots:
            if slot.gpu is gpu and slot.at is not None:
                slot.at.losses += 1
                self._orphans.append(slot.at)
                slot.at = None
        self._slots = [slot for slot in self._slots if slot.gpu is not gpu]
        for slot in self._slots:
            if slot.at is None and self._orphans:
                self._begin(slot)

    def _begin(self, slot: _Slot) -> None:
        """Gives the worker the next conversation, if there is one left."""
        assert slot.gpu.host is not None
        while slot.at is None:
            if self._orphans:
                slot.at = self._orphans.pop()
                self._issue(slot)
                continue
            conversation = self._conversations(slot.gpu.host)
            if conversation is None:
                self._exhausted = True
                return
            request = next(conversation, None)
            if request is not None:
                slot.at = _ConversationState(conversation, request)
                self._issue(slot)

    def _pass_on(self, slot: _Slot, answer: Answer) -> None:
        """Gives the conversation its answer, and the worker the next request."""
        at = slot.at
        assert at is not None
        try:
            at.request, at.losses = at.conversation.send(answer), 0
        except StopIteration:
            slot.at = None
            self._begin(slot)
        else:
            self._issue(slot)

    def _issue(self, slot: _Slot) -> None:
        """Sends the open request to the worker, when the binaries that it needs are there."""
        at, gpu = slot.at, slot.gpu
        assert at is not None
        request = at.request
        if at.losses >= MAX_LOSSES:
            self._pass_on(slot, Refused(f"{at.losses} processes were lost over it"))
        elif isinstance(request, Offer | Batch):
            references: tuple[Mapping[str, Any], ...] = ()
            if isinstance(request, Batch) and request.classes:
                compilers = self._compilers[gpu.host.environment]  # type: ignore[union-attr]
                wanted = [cls for cls in request.classes if cls.key not in gpu.binaries]
                if at.compile_again:
                    at.compile_again = False
                    again = compilers.again(wanted)
                    self._wait(again, partial(self._issue_again, slot, at, again))
                    return
                references = tuple(filter(None, [compilers.references(wanted)]))
            asked = gpu.actor.ask.remote(self._pack(slot.place, request), *references)
            self._calls.later(asked, partial(self._answered, slot, at))
        else:
            self._wait(request, partial(self._waited, slot, at))

    def _issue_again(self, slot: _Slot, at: _ConversationState, order: RayOrder) -> None:
        order.result()
        if slot.at is at:
            self._issue(slot)

    def _waited(self, slot: _Slot, at: _ConversationState) -> None:
        if slot.at is at:
            self._pass_on(slot, READY)

    def _wait(self, order: Pending, then: Callable[[], None]) -> None:
        assert isinstance(order, RayOrder)
        order.when_done(lambda: self._calls.put(then))

    def _answered(self, slot: _Slot, at: _ConversationState, future: Future[Any]) -> None:
        if slot.at is not at:
            return  # the GPU was lost before the answer came
        gpu, request = slot.gpu, at.request
        assert gpu.host is not None
        error = future.exception()
        if error is not None:
            self._failed(gpu, error)
            return
        answer = future.result()
        if isinstance(answer, bytes):
            answer = unpack_timed(answer)
        if isinstance(answer, Missing):
            at.losses += 1
            at.compile_again = True
            gpu.binaries.difference_update(answer.keys)
            self._issue(slot)
        elif not is_answer(request, answer):
            self._answered_nonsense(gpu)
        else:
            if isinstance(answer, Timed):
                gpu.binaries.update(cls.key for cls in getattr(request, "classes", ()))
                answer = replace(answer, gpu=gpu.host.gpu)
            self._pass_on(slot, answer)

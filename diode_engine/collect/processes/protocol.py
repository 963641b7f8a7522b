"""The messages between a run and its workers: msgpack maps. Several messages that are ready at the
same time may be sent together.

worker → run   {"environment": …, "gpu": name} once, when it is ready
run → worker   {"problem": …}                  what would Inductor offer?
worker → run   {"offered": packed, "default": packed}
run → worker   {"problem": …, "candidates": […]}
worker → run   {"begin": i}, {"timing": i, …}  for each; then {"done": true}
               (a direct worker sends begin only if there is one candidate: it times many in turn)
worker → run   {"refused": sentence}           Inductor has no such problem
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any

import msgpack

from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import encode_fields
from diode_engine.core.timing import KernelFacts, Timing

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    packed: bytes = msgpack.packb(message)
    return packed


def unpack(data: bytes) -> Message:
    """The message in these bytes, which must be one. Raises OSError as `unpack_all` does."""
    (message,) = unpack_all(data)
    return message


def unpack_all(data: bytes) -> list[Message]:
    """The messages in these bytes, one or several. Raises OSError, as a lost connection does, where
    they are not messages: the sender cannot be relied on any more."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    messages: list[Message] = []
    try:
        while not messages or unpacker.tell() < len(data):
            messages.append(unpacker.unpack())
    except (ValueError, msgpack.OutOfData) as error:
        raise OSError(f"what was sent is no message: {error}") from error
    if not all(isinstance(message, dict) for message in messages):
        raise OSError("what was sent is no message")
    return messages


def read_answer(message: Message, answered: int, asked: int) -> Timing | str:
    """What a message says, where `answered` of `asked` candidates were answered before: the next
    candidate's timing, or "begin", "done" or "refused". Raises KeyError, TypeError or ValueError
    where the message is impossible then."""
    if "refused" in message:
        return "refused"
    if "done" in message:
        if answered != asked:
            raise ValueError("it has not timed all")
        return "done"
    place = message["begin"] if "begin" in message else message["timing"]
    if place != answered or answered >= asked:
        raise ValueError("it is not this one's turn")
    return "begin" if "begin" in message else timing(message)


def pack_candidates(candidates: Iterable[Candidate]) -> bytes:
    packed: bytes = msgpack.packb([c.to_dict() for c in candidates])
    return packed


@lru_cache(maxsize=512)  # the same thousands of candidates are offered for many problems
def unpack_candidates(packed: bytes) -> tuple[Candidate, ...]:
    """The inverse of `pack_candidates`. Equal candidates are one object, so that what is cached in
    it (its key) is computed once. Raises ValueError or TypeError for other bytes."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed))
    unpacker.feed(packed)
    try:
        count = unpacker.read_array_header()
        ends = [unpacker.tell()]
        for _ in range(count):
            unpacker.skip()
            ends.append(unpacker.tell())
    except msgpack.OutOfData as error:
        raise ValueError("candidates that are cut short") from error
    if ends[-1] != len(packed):
        raise ValueError("more than candidates")
    return tuple(unpack_candidate(packed[a:b]) for a, b in itertools.pairwise(ends))


@lru_cache(maxsize=1 << 14)
def unpack_candidate(packed: bytes) -> Candidate:
    """One candidate of those that `pack_candidates` packs."""
    return Candidate.from_dict(msgpack.unpackb(packed))


def timed(index: int, timing: Timing, reason: str) -> Message:
    """The message with the timing of the candidate `index`; `reason` says what went wrong."""
    return {"timing": index, **encode_fields(timing), "reason": reason}


def timing(message: Message) -> Timing:
    """The inverse of `timed`."""
    values = {field.name: message[field.name] for field in fields(Timing)}
    kernel = values.pop("kernel")
    return Timing(**values, kernel=None if kernel is None else KernelFacts(*kernel))

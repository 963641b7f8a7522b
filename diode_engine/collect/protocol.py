"""What a run and its workers say to each other: msgpack maps, one a message.

worker → run   {"environment": …, "gpu": name} once, when it is ready
run → worker   {"problem": …}                  what would Inductor offer?
worker → run   {"offered": packed, "default": packed}
run → worker   {"problem": …, "candidates": […]}
worker → run   {"begin": i}, {"timing": i, …}  for each; then {"done": true}
               (a direct worker says begin for a single candidate only: it times many at once)
worker → run   {"refused": sentence}           Inductor has no such problem
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgpack

from diode_engine.core.problem import Candidate, Failure, KernelFacts, Timing

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    packed: bytes = msgpack.packb(message)
    return packed


def unpack(data: bytes) -> Message:
    """The message. Raises OSError where it is none, as for a lost connection: its sender cannot be
    trusted any more."""
    try:
        message: Message = msgpack.unpackb(data)
    except ValueError as error:
        raise OSError(f"what was sent is no message: {error}") from error
    if not isinstance(message, dict):
        raise OSError("what was sent is no message")
    return message


def check_answer(message: Message, answered: int, asked: int) -> int:
    """How many of the candidates that were asked the message answers, after so many were answered
    before. Raises KeyError, TypeError or ValueError for a message that is not possible then."""
    if "refused" in message:
        return 0
    if "done" in message:
        if answered != asked:
            raise ValueError("it has not timed all")
        return 0
    place = message["begin"] if "begin" in message else message["timing"]
    if place != answered or answered >= asked:
        raise ValueError("it is not this one's turn")
    if "begin" in message:
        return 0
    timing(message)
    str(message["reason"])
    return 1


def pack_candidates(candidates: Iterable[Candidate]) -> bytes:
    packed: bytes = msgpack.packb([c.to_dict() for c in candidates])
    return packed


@lru_cache(maxsize=512)  # the same thousands are offered for many problems
def unpack_candidates(packed: bytes) -> tuple[Candidate, ...]:
    """The inverse of `pack_candidates`."""
    return tuple(Candidate.from_dict(fields) for fields in msgpack.unpackb(packed))


def timed(index: int, timing: Timing, reason: str) -> Message:
    """The message for one timing, with a sentence on what went wrong."""
    return {
        "timing": index,
        "min_us": timing.min_us,
        "median_us": timing.median_us,
        "spread_us": timing.spread_us,
        "repeats": timing.repeats,
        "failure": None if timing.failure is None else str(timing.failure),
        "kernel": timing.kernel,
        "reason": reason,
    }


def timing(message: Message) -> Timing:
    """The inverse of `timed`."""
    failure, kernel = message["failure"], message["kernel"]
    return Timing(
        min_us=message["min_us"],
        median_us=message["median_us"],
        spread_us=message["spread_us"],
        repeats=message["repeats"],
        failure=None if failure is None else Failure(failure),
        kernel=None if kernel is None else KernelFacts(*kernel),
    )

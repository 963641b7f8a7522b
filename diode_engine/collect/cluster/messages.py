"""Requests on their way to a GPU's process in a cluster, and timings on their way back, as bytes:
Ray passes bytes on without looking into them, which costs the driver less than objects do.

The same candidates and kernel classes are in many requests, so each is packed once, and unpacked
once where it arrives."""

from __future__ import annotations

from dataclasses import astuple
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np

from diode_engine.collect.executor import Batch, Offer, Offered, Refused, Request, Timed
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.processes.protocol import unpack_candidate
from diode_engine.collect.timed_rows import TIMED
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering.kernel_class import KernelClass


class RequestPacker:
    """Packs requests, and remembers their packed parts."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}  # by content key

    def __call__(self, worker: int, request: Offer | Batch) -> bytes:
        """A request to the worker with this number; `unpack_request` unpacks it."""
        parts: list[Any] = [worker, self._part(request.problem)]
        if isinstance(request, Batch):
            parts.append([self._part(candidate) for candidate in request.candidates])
            parts.append([self._part(cls) for cls in request.classes])
        packed: bytes = msgpack.packb(parts)
        return packed

    def _part(self, record: Problem | Candidate | KernelClass) -> bytes:
        packed = self._packed.get(record.key)
        if packed is None:
            packed = self._packed[record.key] = msgpack.packb(record.to_dict())
        return packed


def unpack_request(packed: bytes) -> tuple[int, Offer | Batch]:
    """The worker and the request."""
    worker, problem, *more = msgpack.unpackb(packed)
    if not more:
        return worker, Offer(_problem(problem))
    candidates, classes = more
    return worker, Batch(
        _problem(problem),
        tuple(unpack_candidate(each) for each in candidates),
        tuple(_class(each) for each in classes),
    )


def pack_timed(answer: Timed) -> bytes:
    """The answer as bytes; `unpack_timed` unpacks it."""
    state = None if answer.state is None else astuple(answer.state)
    rows = answer.rows.tobytes()
    packed: bytes = msgpack.packb([rows, answer.gpu, state, answer.throttled, answer.workers_lost])
    return packed


def unpack_timed(packed: bytes) -> Timed | None:
    """The inverse of `pack_timed`; None for other bytes."""
    try:
        rows, gpu, state, throttled, lost = msgpack.unpackb(packed, use_list=False)
        known = None if state is None else GpuState(*state)
        return Timed(np.frombuffer(rows, TIMED), gpu, known, throttled, lost)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def is_answer(request: Request, answer: object) -> bool:
    """Whether a GPU's process may answer this to the request. (It has checked the messages of its
    own workers.)"""
    if isinstance(request, Offer):
        return isinstance(answer, Offered | Refused)
    if not isinstance(request, Batch) or not isinstance(answer, Timed):
        return False
    rows = answer.rows
    if not isinstance(rows, np.ndarray) or rows.dtype != TIMED or rows.ndim != 1:
        return False
    places = rows["place"].tolist()
    return len(set(places)) == len(places) and set(places) <= set(range(len(request.candidates)))


@lru_cache(maxsize=1 << 8)
def _problem(packed: bytes) -> Problem:
    return Problem.from_dict(msgpack.unpackb(packed))


@lru_cache(maxsize=1 << 14)
def _class(packed: bytes) -> KernelClass:
    return KernelClass.from_dict(msgpack.unpackb(packed))

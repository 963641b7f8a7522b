"""Requests on their way to a GPU's process in a cluster, as bytes: candidates and kernels come
again in many of them, so each is packed once, and unpacked once where it arrives."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgpack

from diode_engine.collect.executor import Batch, Offer
from diode_engine.collect.protocol import unpack_candidate
from diode_engine.core.problem import Candidate, Problem
from diode_engine.inductor.lowering.kernel_class import KernelClass


class RequestPacker:
    """Packs requests; what it has packed of their parts it keeps."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}  # by content key

    def __call__(self, request: Offer | Batch) -> bytes:
        """What `unpack_request` unpacks."""
        parts: list[Any] = [self._part(request.problem)]
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


def unpack_request(packed: bytes) -> Offer | Batch:
    problem, *more = msgpack.unpackb(packed)
    if not more:
        return Offer(_problem(problem))
    candidates, classes = more
    return Batch(
        _problem(problem),
        tuple(unpack_candidate(each) for each in candidates),
        tuple(_class(each) for each in classes),
    )


@lru_cache(maxsize=1 << 8)
def _problem(packed: bytes) -> Problem:
    return Problem.from_dict(msgpack.unpackb(packed))


@lru_cache(maxsize=1 << 14)
def _class(packed: bytes) -> KernelClass:
    return KernelClass.from_dict(msgpack.unpackb(packed))

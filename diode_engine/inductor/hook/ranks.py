"""Compares the fingerprints of the ranks of a distributed program.

The ranks write into the store of torch.distributed and read from it. Nothing here is a collective:
a rank that does not take part stops no other one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic, sleep
from typing import Any

from diode_engine.choosing.fingerprint import Fingerprint
from diode_engine.errors import IntegrationError
from diode_engine.inductor.guard import do_nothing, guard
from diode_engine.inductor.torch_internals.process_group import default_store

log = logging.getLogger(__name__)

THREAD = "diode-compare-ranks"
_FIRST = "diode/first"  # the key of the fingerprint of the rank that compiled first
_ADVICE = "Give all ranks the same Diode, torch, model and options."
_POLL_S = 0.02
_calls = count()
_started = threading.Event()  # the comparison at the first compile


def compare(own: Fingerprint, timeout: float) -> list[str]:
    """Return, and log, what `compare_ranks` of hook/fingerprint.py describes. `own` is the
    fingerprint of this rank, `timeout` are seconds."""
    store = default_store()
    if store is None:
        return []
    import torch.distributed as dist

    place = f"diode/ranks/{next(_calls)}"
    try:
        found = exchange(store, place, dist.get_rank(), dist.get_world_size(), own, timeout)
    except RuntimeError as error:  # of the store: closed, out of reach, or one that stores nothing
        raise IntegrationError(
            f"The ranks could not be compared, since the store of torch.distributed fails: {error}"
        ) from error
    for sentence in found:
        log.warning("%s %s", sentence, _ADVICE)
    return found


def exchange(
    store: Any, place: str, rank: int, ranks: int, own: Fingerprint, timeout: float
) -> list[str]:
    """Return what `compare` returns. Rank 0 reads the fingerprints of all ranks below `place`
    in the store, and writes there what it has found."""
    end = monotonic() + timeout
    store.set(f"{place}/{rank}", _written(rank, own))
    if rank == 0:
        written = [_read(store, f"{place}/{other}", end) for other in range(ranks)]
        store.set(f"{place}/found", json.dumps(_judge(written)))
    found = _read(store, f"{place}/found", end)
    if found is None:
        found = {"absent": [0]}
    if found["absent"]:
        absent = ", ".join(map(str, found["absent"]))
        raise IntegrationError(
            f"These ranks did not call compare_ranks within {timeout:g} s: {absent}. Every rank "
            "has to call it; give it a longer timeout where they start far apart."
        )
    sentences: list[str] = found["sentences"]
    return sentences


def _judge(written: Sequence[Any]) -> dict[str, Any]:
    """Return the ranks that wrote nothing, and a sentence for each that differs from the first."""
    first = next(each for each in written if each)
    differing = (_compared(each, first) for each in written if each)
    return {
        "absent": [rank for rank, each in enumerate(written) if not each],
        "sentences": [sentence for sentence in differing if sentence],
    }


def _compared(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Return how one rank differs from another, as a sentence; "" where it does not."""
    parts = Fingerprint(one["parts"]).describe_differences(Fingerprint(other["parts"]))
    ranks = f"Rank {one['rank']} does not choose kernels as rank {other['rank']} does"
    return f"{ranks}: {parts}." if parts else ""


def _written(rank: int, fingerprint: Fingerprint) -> str:
    return json.dumps({"rank": rank, "parts": dict(fingerprint.parts)})


def _read(store: Any, key: str, end: float) -> Any:
    """Return what is under a key, waiting for it until the time `end`; None where it is not there
    by then. (`Store.wait` would keep the process's other threads from using the store.)"""
    while not store.check([key]):
        if monotonic() > end:
            return None
        sleep(_POLL_S)
    return json.loads(store.get(key))


@guard("the ranks were not compared", stock=do_nothing)
def compare_with_first(parts: Mapping[str, str]) -> None:
    """Compare this rank with the one that compiled first, once, and log a warning where they
    differ. `parts` are those of its fingerprint without the options, since a rank may compile
    something else first.

    It is done in a thread, by one request that the store answers at once, so that no compile waits
    for it.
    """
    if _started.is_set():
        return
    store = default_store()
    if store is None:
        return
    _started.set()
    import torch.distributed as dist

    arguments = store, dist.get_rank(), Fingerprint(parts)
    threading.Thread(target=_compare_with_first, args=arguments, name=THREAD, daemon=True).start()


def _compare_with_first(store: Any, rank: int, own: Fingerprint) -> None:
    try:
        written = _written(rank, own)
        first = json.loads(store.compare_set(_FIRST, "", written))
        if sentence := _compared(json.loads(written), first):
            log.warning("%s %s (logged once)", sentence, _ADVICE)
    except Exception:  # a store of another kind, or one that is closed
        log.debug("The ranks could not be compared.", exc_info=True)

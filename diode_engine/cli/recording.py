"""Work that a run of the store keeps, with what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from diode_engine.cli import diagnostics

if TYPE_CHECKING:
    from diode_engine.store import Store


class _Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Result)


def as_run(
    store: Store,
    kind: str,
    spec: Mapping[str, object],
    work: Callable[[Callable[[], None], Callable[[Mapping[str, Any]], None]], R],
    summary: Callable[[R], tuple[Mapping[str, Any], str]],
) -> R:
    """What comes of the work, and a run of this kind that keeps it and says how it ended. `work`
    is given what raises KeyboardInterrupt where somebody has asked the run to stop, and what
    writes how far it is; `summary` is the progress that a list of runs shows, and a sentence."""
    from diode_engine.runs import Job

    if store.read_only:
        diagnostics.warn(f"{store.location} cannot be written, so it keeps no record of this.")
        return work(lambda: None, lambda _: None)
    with Job(store, kind, spec) as job:
        result = work(job.check, job.tell)
        store.set_result(job.id, result.to_dict())
        figures, job.message = summary(result)
        job.tell(figures)
        return result

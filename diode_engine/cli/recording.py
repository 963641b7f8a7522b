"""Work that is recorded as a run of the store, with its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from diode_engine.cli import diagnostics

if TYPE_CHECKING:
    from diode_engine.store import Store


class _Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Result)


def record_as_run(
    store: Store,
    kind: str,
    spec: Mapping[str, object],
    work: Callable[[Callable[[], None], Callable[[Mapping[str, Any]], None]], R],
    summary: Callable[[R], tuple[Mapping[str, Any], str]],
) -> R:
    """The result of the work, recorded in a run of this kind that says how the work ended.

    `work` gets two functions: one raises KeyboardInterrupt where somebody has asked the run to
    stop, the other writes how far it is. `summary` gives the progress that a list of runs shows,
    and a sentence.
    """
    from diode_engine.runs import Job

    if store.read_only:
        diagnostics.warn(f"{store.location} cannot be written, so this is not recorded as a run.")
        return work(lambda: None, lambda _: None)
    with Job(store, kind, spec) as job:
        result = work(job.check, job.tell)
        store.set_result(job.id, result.to_dict())
        figures, job.message = summary(result)
        job.tell(figures)
        return result

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
    from diode_engine.runs import Heartbeat, begin

    if store.read_only:
        diagnostics.warn(f"{store.path} cannot be written, so it keeps no record of this.")
        return work(lambda: None, lambda _: None)
    run = begin(store, kind, spec)
    state, message = "failed", None
    try:
        with Heartbeat(store, run) as heartbeat:
            result = work(
                heartbeat.check, lambda progress: store.update_run(run, progress=progress)
            )
        store.set_result(run, result.to_dict())
        figures, message = summary(result)
        store.update_run(run, progress=figures)
        state = "done"
        return result
    except KeyboardInterrupt:
        state, message = "cancelled", "stopped by the user"
        raise
    except Exception as error:
        message = str(error)
        raise
    finally:
        store.finish_run(run, state, message)

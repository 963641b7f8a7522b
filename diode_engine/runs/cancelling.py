"""Stops a run: by a request in the store, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import time
from collections.abc import Callable

from diode_engine.errors import RunOverError
from diode_engine.runs.process import is_alive, kill, terminate
from diode_engine.runs.status import Status, look
from diode_engine.store import RunState, Store

ASKED_SECONDS = 10.0  # for the run to hear of it, at its next heartbeat, and to end its step
TERMINATED_SECONDS = 10.0  # for it to end its workers and write what it has
LOOK_SECONDS = 0.1


def cancel(
    store: Store,
    run: int,
    *,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Status:
    """Stops a run, and returns its state after that. It waits until the run has ended, at most
    ASKED_SECONDS + TERMINATED_SECONDS.

    Some runs can only be asked: those on another machine or of another user, which this process
    cannot reach, and those inside a Python program that is not Diode's command. They may still be
    CANCELLING when this returns. `tell` is called with a sentence for each step. Raises RunError
    where the run has ended already.
    """
    status = look(store, run)
    if status.state.ended:
        raise RunOverError(f"Run {run} is {status.state} already; there is nothing to cancel.")
    store.ask_to_cancel(run)
    tell(f"Run {run} was asked to stop ...")

    def over(within: float) -> bool:
        end = clock() + within
        while not look(store, run).state.ended:
            if clock() >= end:
                return False
            sleep(LOOK_SECONDS)
        return True

    if not over(ASKED_SECONDS):
        status = look(store, run)
        process = status.run.process
        if process is None or status.run.command is None or is_alive(process) is None:
            return status
        try:
            tell(f"Run {run} is terminated ...")
            terminate(process)
            if not over(TERMINATED_SECONDS):
                tell(f"Run {run} is killed.")
                kill(process)
                over(TERMINATED_SECONDS)
        except PermissionError:
            tell(f"Run {run} is another user's: it was only asked.")
            return look(store, run)
    if look(store, run).state is RunState.DEAD:  # it had no time to write its end
        store.finish_run(run, RunState.CANCELLED, "stopped by the user, before it could end itself")
    return look(store, run)

"""Long jobs: started in processes of their own, watched, cancelled, resumed.

A job works within a `Job`, which writes to the store that the job is alive, and how it ended.
Everybody who can read the store can see the state of a run (`look`), start one (`start`), follow
it, stop it, and continue one that was interrupted.
"""

from diode_engine.runs.cancelling import cancel
from diode_engine.runs.following import Tail, Tick, follow
from diode_engine.runs.importing import import_as_run
from diode_engine.runs.job import Job, begin
from diode_engine.runs.launch import (
    KINDS,
    command_line,
    repeat,
    resume,
    settle,
    start,
    start_import,
)
from diode_engine.runs.status import Status, find, look, look_at_all

__all__ = [
    "KINDS", "Job", "Status", "Tail", "Tick", "begin", "cancel", "command_line",
    "find", "follow", "import_as_run", "look", "look_at_all", "repeat", "resume", "settle", "start",
    "start_import",
]  # fmt: skip

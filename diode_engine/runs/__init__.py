"""The life of a long job: started in a process of its own, watched, cancelled, resumed.

A job works within a `Job`, which tells the store that it lives and how it ended; anybody with the
store can see how it is (`look`), start one (`start`), follow it, stop it, and go on with one that
was cut short.
"""

from diode_engine.runs.cancelling import cancel
from diode_engine.runs.following import Tail, Tick, follow
from diode_engine.runs.importing import import_as_run
from diode_engine.runs.job import Heartbeat, Job, begin
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
    "KINDS",
    "Heartbeat",
    "Job",
    "Status",
    "Tail",
    "Tick",
    "begin",
    "cancel",
    "command_line",
    "find",
    "follow",
    "import_as_run",
    "look",
    "look_at_all",
    "repeat",
    "resume",
    "settle",
    "start",
    "start_import",
]

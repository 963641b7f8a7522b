"""A job that begins a run as Diode's commands do, and then does what it reads from a FIFO.

    scripted_job.py -P -m diode_engine KIND ... --store=PATH

Words: `check` beats and stops if it was asked to, `deaf` ignores SIGTERM, `child` starts a
process in a session of its own, `say` writes to the log, `end` ends the run as done.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from diode_engine.runs import Job, job
from diode_engine.store import Store

folder = Path(os.environ["DIODE_JOB"])
arguments = sys.argv[4:]
store = Store.open(arguments[-1].removeprefix("--store="))
to_us = (folder / "to-job").open()
from_us = (folder / "from-job").open("w")


def say(word):
    print(word, file=from_us, flush=True)


signal.signal(signal.SIGTERM, signal.default_int_handler)
job.BEAT_SECONDS = 3600
run = Job(store, arguments[0], {"arguments": arguments})
with contextlib.suppress(KeyboardInterrupt), run:
    say(f"begun {run.id}")
    while (word := to_us.readline().strip()) != "end":
        if word == "check":
            run._beat()
            run.check()
        elif word == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif word == "child":
            waits = [sys.executable, "-c", "import signal; signal.pause()"]
            say(subprocess.Popen(waits, start_new_session=True).pid)
        elif word == "say":
            os.write(1, b"from the job\n")
        say(f"did {word}")
os.write(1, b"the last word\n")

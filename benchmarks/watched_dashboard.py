"""diode-tui, which reports how long its event loop handled nothing. For dashboard.py.

    python benchmarks/watched_dashboard.py STORE REPORT

REPORT gets a line `when seconds busy` for each time that this took longer than 20 ms. `when` is by
time.perf_counter, which all processes share on Linux. `busy` is the processor time that the event
loop's own thread used in these seconds; the rest of them it waited for other threads and processes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from diode_app import app as app_module
from diode_app import main

NOTED = 0.02


async def beat(report: Path) -> None:
    with report.open("w", buffering=1) as file:
        before, worked = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, work = time.perf_counter(), time.thread_time()
            if now - before > NOTED:
                file.write(f"{before} {now - before} {work - worked}\n")
            before, worked = now, work


class Watched(app_module.DiodeApp):
    """The dashboard; `report` is set below."""

    CSS_PATH = str(Path(app_module.__file__).with_name("app.tcss"))
    report: Path

    def on_load(self) -> None:
        self.heart = asyncio.get_running_loop().create_task(beat(self.report))


if __name__ == "__main__":
    Watched.report = Path(sys.argv.pop())
    app_module.DiodeApp = Watched  # type: ignore[misc]
    sys.argv[1] = f"--store={sys.argv[1]}"
    main.run()

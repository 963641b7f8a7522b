"""How fast the dashboard is, as a person at a terminal sees it.

    python benchmarks/dashboard.py [--timings 5000000] [--keep FILE|URL]
        [--during-import N | --bursts N]

It runs diode-tui in a pseudo-terminal of 160x50, presses keys and reads the screen. The store has
the shipped timings, repeated with altered sizes, and a collection writes 2,000 timings a second
into it meanwhile. Limits: 0.5 s to a usable screen; 1 s to the store's figures on it; 0.3 s to a
page that is visited first; 100 ms from a key to what it shows; 100 ms during which the event loop
handles nothing (watched_dashboard.py measures that); 0.5 s to quit. A table at the end has the
first visits of all pages, and the start.
Then the collection is ended, and the bytes are counted that are sent to the terminal while nothing
changes. On each screen that it looks at there should be none, since none shows a clock.
With --during-import it instead writes 200 notes, tags and starts while another process imports N
timings: each is to be shown, or shown as waiting, within 0.2 s, and none may be lost.
With --bursts N it sends N bursts of mixed keys, 10 ms apart, and nothing else is running: after
each the right page is to be shown within 1 s of the last key.
With --keep the store is left in a file, or taken from there, or from a server.
Python's compiled modules are kept between the processes, as where Diode is installed, also where
PYTHONDONTWRITEBYTECODE is set: else each start would compile all of Diode. The first start is not
counted. The reference for the start is `python -c "import textual.app"`, which no dashboard in
Textual can beat. A wait is printed with its processor time too, which other work on the machine
changes less.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import multiprocessing
import os
import pty
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import numpy as np
from store_queries import altered, fill, say

from diode_engine import paths
from diode_engine.core.table import TimingTable
from diode_engine.location import Location, location_of
from diode_engine.runs import Job
from diode_engine.store import Store, read_dataset

# Pages, the keys that lead to each from the one before, and what is only on it.
PAGES = (
    ("Runs", "R", "time left"), ("a run", "\r", "Curves"), ("Collect", "C", "Sources"),
    ("Data", "D", "ATen eff."), ("a problem", "\r", "GFLOP"), ("a candidate", "\r", "Predictions"),
    ("Ask", "W", "estimate"), ("Train", "T", "Family"), ("Validate", "V", "judged"),
    ("Models", "M", "of best"), ("a model", "\r", "Lineage"),
    ("Programs", "P", "-- python program.py"), ("sizes", "nmm 64 64 64 bf16", "mm 64 64 64 bf16"),
    ("a program", "\r", "All times"),
    ("SQL", "Q", "^g answers"), ("Settings", "S", "Kept in"), ("Help", "?", "Escape closes it"),
    ("About", "\x1bA", "python is"), ("Home", "H", "Model in use"),
)  # fmt: skip
GAP = 0.01  # seconds between the keys of a burst
# What a burst begins with: places, and dialogs and pages that are left again.
# In a form j enters a field, where letters are text until Escape.
WANDERING = (
    *"HRCDWTVMPQSAgG12", "j\x1b", "k\x1b", "?\x1b", "?se\x1b", ":tr\x1b", "R/ab\x1b", "D\r\x1b",
    "R\rl\x1b",
)  # fmt: skip
# The screens on which nothing should change, and the keys that lead from one to the next.
RESTS = (
    ("Home", "H"), ("a problem's page", "D\r"), ("a run's page", "\x1bR\r"),
    ("a dialog", "n"), ("the help", "\x1b?"),
)  # fmt: skip
SETTLE, REST = 2.0, 5.0  # seconds: without a byte until it counts as at rest; watched after that
WRITES, STARTS_EVERY = 200, 20  # while an import runs
WAITING = "waiting for the store"
SETTLES = 15  # so often it may send something before it is at rest, such as facts of the hardware
RATE = 2000  # timings a second
BATCH = 200
_ESCAPES = re.compile(
    rb"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[P_].*?\x1b\\"
)


def write(path: Location, ready: object) -> None:
    """Writes to the store as a collection does, until the process is killed."""
    (shipped,) = (paths.shipped_dir() / "datasets/nvidia-h200").glob("*.msgpack.zst")
    table = altered(read_dataset(shipped), 100_000)
    spec = {"problems": len(table.problems)}
    with Store.open(path) as store, Job(store, "collect", spec) as job:
        done, began = 0, time.monotonic()
        ready.set()  # type: ignore[attr-defined]
        while True:
            rows = np.arange(done, done + BATCH) % len(table)
            done += store.add(job.id, table.take(np.sort(rows)))
            seconds = time.monotonic() - began
            progress = {
                "timings": done, "candidates": 1_000_000, "rate": done / seconds,
                "seconds_left": (1_000_000 - done) / RATE, "seconds": seconds,
            }  # fmt: skip
            job.tell(progress)
            time.sleep(max(0.0, done / RATE - seconds))


class Terminal:
    """diode-tui in a pseudo-terminal, and its output without escape sequences."""

    def __init__(self, store: Location, settings: Path, report: Path | None = None) -> None:
        self.began = time.perf_counter()
        environment = {**os.environ, "TERM": "xterm-256color", "DIODE_HOME": str(settings)}
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            words = ["-m", "diode_app", f"--store={store}"]
            if report is not None:
                watched = Path(__file__).with_name("watched_dashboard.py")
                words = [str(watched), str(store), str(report)]
            os.execve(sys.executable, [sys.executable, *words], environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._raw = b""

    def read_for(self, seconds: float) -> int:
        """Lets it write, as a terminal does, for so long; returns how many bytes it wrote."""
        end, sent = time.perf_counter() + seconds, 0
        while select.select([self._fd], [], [], max(0.0, end - time.perf_counter()))[0]:
            sent += len(os.read(self._fd, 1 << 16))
        return sent

    def press(self, key: str) -> None:
        self._raw = b""
        self.began = time.perf_counter()
        os.write(self._fd, key.encode())

    def type(self, keys: str) -> None:
        """Presses the keys one after the other, as a quick person does."""
        for key in keys[:-1]:
            self.press(key)
            self.read_for(GAP)
        self.press(keys[-1])

    def until(self, *texts: str, seconds: float = 30.0) -> float:
        """Seconds since the last key (or the start) until one of these was on the screen."""
        if (found := self.find(*texts, seconds=seconds)) is None:
            raise SystemExit(f"{texts} never came:\n{_ESCAPES.sub(b'', self._raw)!r}")
        return found

    def find(self, *texts: str, seconds: float) -> float | None:
        """As `until`; None where none of these comes."""
        end = self.began + seconds
        while not self._raw or not any(
            text.encode() in _ESCAPES.sub(b"", self._raw) for text in texts
        ):
            left = end - time.perf_counter()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                return None
            with contextlib.suppress(OSError):
                self._raw += os.read(self._fd, 1 << 16)
        return time.perf_counter() - self.began

    def processor_seconds(self) -> float:
        """The processor time that the process has used until now, in all its threads."""
        stat = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def quit(self) -> float:
        """Seconds until the process is gone."""
        self.press("q")
        while True:
            if select.select([self._fd], [], [], 0.005)[0]:
                with contextlib.suppress(OSError):
                    os.read(self._fd, 1 << 16)
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                os.close(self._fd)
                return time.perf_counter() - self.began


def verdict(name: str, taken: list[float], limit: float, note: str = "") -> None:
    worst = max(taken)
    say(
        f"{name:44}median {1000 * statistics.median(taken):6.0f} ms  worst {1000 * worst:6.0f} ms"
        f"  {worst / limit:5.2f} of the limit{'' if worst <= limit else '  TOO SLOW'}{note}"
    )


def measure(path: Location, settings: Path) -> None:
    terminal = Terminal(path, settings)
    terminal.until("candidates")
    terminal.read_for(5)  # until all modules are compiled
    terminal.quit()
    alone = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import textual.app"], check=True)
        alone.append(time.perf_counter() - began)

    starts, filled, quits, used = [], [], [], []
    for _ in range(5):
        terminal = Terminal(path, settings)
        starts.append(terminal.until("Runs"))
        used.append(terminal.processor_seconds())
        filled.append(terminal.until("candidates"))
        quits.append(terminal.quit())
    beside, work = min(starts) / min(alone), 1000 * statistics.median(used)
    note = f"  {beside:.1f} × textual alone, {work:.0f} ms of processor time"
    verdict("start, until keys work", starts, 0.5, note)
    verdict("start, until the store's figures are shown", filled, 1.0)
    verdict("quit, just after the start", quits, 0.5)

    visits = visit_pages(path, settings)
    terminal = Terminal(path, settings)
    terminal.until("candidates")
    # While the modules of the screens are still being imported; then when they are there.
    first, again, moves = [], [], []
    tour = (("R", "time left"), ("S", "Kept in"), ("A", "python is"), ("H", "Model in use"))
    for key, shows in tour[:-1]:
        terminal.press(key)
        first.append(terminal.until(shows))
    for _ in range(10):
        for key, shows in (("H", "Model in use"), *tour[:-1]):
            terminal.press(key)
            again.append(terminal.until(shows))
    terminal.press("R")
    terminal.until("time left")
    for turn in range(20):
        terminal.press("o")
        moves.append(terminal.until("▲" if turn % 2 == 0 else "▼"))
    verdict("a key to a screen, just after the start", first, 0.1)
    verdict("a key to a screen", again, 0.1)
    verdict("a table turned round", moves, 0.1)
    terminal.press("\r")
    verdict("a run's page", [terminal.until("Curves")], 0.1)
    verdict("quit, while a run is watched", [terminal.quit()], 0.5)
    say(f"\n{'':16}{'first':>8}{'again':>8}   of the limit")
    rows = {"start to counts": (statistics.median(filled), None, 1.0)}
    rows |= {page: (first, again, 0.3) for page, (first, again) in visits.items()}
    for name, (first_s, again_s, limit) in rows.items():
        told = f"{1000 * first_s:5.0f} ms" + (f"{1000 * again_s:5.0f} ms" if again_s else " " * 8)
        late = "" if first_s <= limit else "  TOO SLOW"
        say(f"{name:16}{told}   {first_s / limit:.2f}{late}")


def visit_pages(path: Location, settings: Path) -> dict[str, list[float]]:
    """Visits every page twice. Prints the longest time during which the event loop handled nothing.
    Returns the seconds from the key to the page, of the first and the second visit."""
    report = settings / "blocked"
    terminal = Terminal(path, settings, report)
    terminal.until("candidates")
    terminal.read_for(8)  # until all modules are imported and the screens are made ahead
    visits, shown = [], {}
    for turn in ("first", "again"):
        for page, keys, shows in PAGES:
            began = time.perf_counter()
            terminal.type(keys)
            shown.setdefault(page, []).append(terminal.until(shows))
            terminal.read_for(1)  # what follows the body is of this visit too
            visits.append((turn, page, began, time.perf_counter()))
    terminal.quit()
    beats = [tuple(map(float, line.split())) for line in report.read_text().splitlines()]
    busiest = 0.0
    for turn in ("first", "again"):
        worst = []
        for kind, page, began, ended in visits:
            if kind == turn:
                mine = [(long, work) for at, long, work in beats if began <= at < ended]
                held, work = max(mine, default=(0.0, 0.0))
                busiest = max([busiest, *(work for _, work in mine)])
                worst.append(held)
                say(
                    f"  {page} {turn}: loop held up for {1000 * held:4.0f} ms at most, "
                    f"{1000 * work:.0f} of work"
                )
        verdict(f"the loop held up, {turn}", worst, 0.1)
    say(f"  the loop's own work at one time: {1000 * busiest:.0f} ms at most")
    return shown


def bursts(path: Location, settings: Path, count: int) -> None:
    """Sends this many bursts of keys. Each ends with a word that no other burst has, on the page
    that its last keys lead to."""
    before = _count_runs(path)
    terminal = Terminal(path, settings)
    terminal.until("candidates")
    terminal.read_for(8)  # until all modules are imported and the screens are made ahead
    draw, taken, wrong = random.Random(1), [], []
    for number in range(1, count + 1):
        listed = "R/\x15kind:collect\r"
        keys, shows = draw.choice((
            (f"R/\x15tag:x{number}\r", f"filter: tag:x{number}"),
            (f"D/\x15m<={number}\r", f"filter: m<={number}"),
            (f"Wm\x15mm 64 {number} 64 bf16\r", f"mm 64 {number} 64 bf16"),
            (f"{listed}n\x15x{number}\r", f": x{number}."),  # a note on a run
            (f"{listed}\rnx\x1b\x1bn\x15x{number}\r", f": x{number}."),
        ))  # fmt: skip
        begins = "".join(draw.choices(WANDERING, k=draw.randint(2, 9)))
        terminal.type(begins + keys)
        if (seconds := terminal.find(shows, seconds=20.0)) is None:
            wrong.append((begins + keys, shows))
            terminal.type("\x1b\x1bH")
        else:
            taken.append(seconds)
            if seconds > 1.0:
                say(f"  {seconds:.2f} s: {begins + keys!r}")
        if number % 50 == 0 and taken:
            verdict(f"{number:,} bursts, {len(wrong)} wrong", taken, 1.0)
    terminal.quit()
    late = sum(seconds > 1.0 for seconds in taken)
    median, most = np.percentile(taken, (50, 99))
    say(
        f"{len(taken):,} of {count:,} bursts ended on the right page, {late} of them after more "
        f"than 1 s; median {median:.3f} s, 99th {most:.3f} s, worst {max(taken):.3f} s; "
        f"{_count_runs(path) - before} runs were started by mistake"
    )
    for keys, shows in wrong:
        say(f"  WRONG: {keys!r} did not lead to {shows!r}")


def _count_runs(path: Location) -> int:
    with Store.open(path, read_only=True) as store:
        return len(store.runs())


def import_on(path: Location, timings: int, ready: object) -> None:
    """Imports this many timings, and then more, until the process is killed."""
    (shipped,) = (paths.shipped_dir() / "datasets/nvidia-h200").glob("*.msgpack.zst")
    table = read_dataset(shipped)
    parts = range(-(-timings // len(table)))
    with Store.open(path) as store:
        for first in itertools.count(200_000, len(parts)):
            whole = TimingTable.joined([altered(table, first + part) for part in parts])
            began = time.monotonic()
            store.import_table(
                whole, key=f"benchmark {first} {began}", spec={"timings": len(whole)},
                progress=lambda *_: ready.set(),  # type: ignore[attr-defined]
            )  # fmt: skip
            say(f"  {len(whole):,} timings imported in {time.monotonic() - began:.1f} s meanwhile")


def write_meanwhile(path: Location, settings: Path, timings: int) -> None:
    """Writes notes, tags and starts from the dashboard while this many timings are imported."""
    with Store.open(path) as store:
        run = store.start_run(
            "import", {}, command=("diode-engine", "data", "import", "none.json"), directory="/"
        )
        store.finish_run(run, "done", "Its command fails at once, so that a start is cheap.")
    ready = multiprocessing.get_context("spawn").Event()
    importer = multiprocessing.get_context("spawn").Process(
        target=import_on, args=(path, timings, ready), daemon=True
    )
    terminal = Terminal(path, settings)
    terminal.until("candidates")
    terminal.press(f"R/id:{run}\r")
    terminal.until("fails at once")
    importer.start()
    ready.wait()
    shown: dict[str, list[float]] = {"note": [], "tags": [], "start": []}
    kept = 0
    try:
        for number in range(WRITES):
            if number % STARTS_EVERY == STARTS_EVERY - 1:
                kept += _start(terminal, path, run, shown["start"])
                continue
            label, key = ("note", "n") if number % 2 else ("tags", "a")
            terminal.press(key)
            terminal.until(f"The {label} of run {run}")
            terminal.press(f"\x15word{number}")  # Ctrl+U empties the line
            terminal.read_for(0.2)
            terminal.press("\r")
            written = f"The {label} of run {run}: word{number}."
            shown[label].append(terminal.until(written, WAITING))
            terminal.until(written)
            with Store.open(path, read_only=True) as store:
                found = store.run(run)
                kept += f"word{number}" in (found.note, *found.tags)
    finally:
        importer.kill()
        importer.join()
    for what, taken in shown.items():
        verdict(f"{what}, shown or shown as waiting", taken, 0.2)
    say(f"  kept: {kept} of {WRITES} notes, tags and starts{'' if kept == WRITES else '  LOST'}")
    terminal.quit()


def _start(terminal: Terminal, path: Location, run: int, shown: list[float]) -> bool:
    """Starts the run once more. Whether a new run is there."""
    before = _started(path)
    terminal.press("r")
    terminal.until("once more, as a new run?")
    terminal.read_for(0.3)  # a key before the question can be seen would not count
    terminal.press("y")
    done = f"does the same as run {run}"
    shown.append(terminal.until(done, WAITING))
    terminal.until(done)
    terminal.press("\x1b")  # from the new run's page
    terminal.until(f"filter: id:{run}")
    return _started(path) == before + 1


def _started(path: Location) -> int:
    """How many runs have the command that is started."""
    with Store.open(path, read_only=True) as store:
        return sum("none.json" in (run.command or ()) for run in store.runs())


def rest(path: Location, settings: Path) -> None:
    with Store.open(path) as store:
        for run in store.runs():
            if run.finished is None:
                store.finish_run(run.id, "cancelled", "The benchmark has ended it.")
    terminal = Terminal(path, settings)
    terminal.until("candidates")
    for name, keys in RESTS:
        for key in keys:
            terminal.press(key)
            any(not terminal.read_for(SETTLE) for _ in range(SETTLES))  # until it is at rest
        sent = terminal.read_for(REST)
        what = f"sent in {REST:.0f} s while nothing changes, {name}"
        say(f"{what:60}{sent:6,} bytes, of 0{'  TOO MANY' if sent else ''}")
    terminal.press("\x1b")
    terminal.read_for(1)
    terminal.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the dashboard on this machine.")
    parser.add_argument("--timings", type=int, default=5_000_000)
    parser.add_argument("--keep", type=location_of, metavar="FILE|URL")
    parser.add_argument("--during-import", type=int, metavar="N", help="only write notes, tags and "
                        "starts while an import of N timings runs")  # fmt: skip
    parser.add_argument("--bursts", type=int, metavar="N", help="only send N bursts of keys")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))
        path = given.keep or Path(folder, "store.db")
        if isinstance(path, Path) and not path.exists():
            fill(path, given.timings)
        if given.during_import is not None:
            write_meanwhile(path, Path(folder), given.during_import)
            return
        if given.bursts is not None:
            bursts(path, Path(folder), given.bursts)
            return
        ready = multiprocessing.get_context("spawn").Event()
        writer = multiprocessing.get_context("spawn").Process(
            target=write, args=(path, ready), daemon=True
        )
        writer.start()
        ready.wait()
        try:
            measure(path, Path(folder))
        finally:
            writer.kill()
            writer.join()
        rest(path, Path(folder))


if __name__ == "__main__":
    main()

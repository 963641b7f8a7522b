"""What children do (see `children`), and the tables that they do it with."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path

from diode_engine import registry
from diode_engine.cli import db as _db  # noqa: F401  # commands import theirs when called
from diode_engine.cli import main
from diode_engine.core.table import TimingTable
from diode_engine.errors import DiodeError
from diode_engine.runs import Job, job
from diode_engine.store import Store, import_dataset, query, soundness
from tests.samples import timing_at
from tests.store.conftest import make_table

table = make_table
_NOBODY = 65534


def batch(number: int) -> TimingTable:
    """What a writer of a crowd adds at once."""
    return table(4, 25, first=8 * number)


def imported() -> TimingTable:
    """What all writers of a crowd import at the end."""
    return table(4, 25, first=1000)


def content(path: Path) -> list[object]:
    """All that a store says of its timings, in a form that can be compared."""
    with Store.open(path, read_only=True) as store:
        found = store.read()
        rows = sorted(
            (
                found.problems[found.problem[i]].key,
                found.candidates[found.candidate[i]].key,
                found.environments[found.environment[i]].key,
                repr(timing_at(found, i)),
            )
            for i in range(len(found))
        )
        stats = store.stats()
        page = [(r.problem, r.best_us, r.aten_us, r.timings) for r in query.problems(store)]
        return [rows, stats.timings, stats.problems, dict(stats.by_run), page]


def command(*arguments: object) -> tuple[int, str, str]:
    """Runs diode-engine: its exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    for stream in (out, err):
        stream.flush()
    return (int(code), out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


# To be killed


def import_file(store: str, file: str) -> None:
    with Store.open(store) as opened:
        import_dataset(opened, file)


def migrate(store: str) -> None:
    Store.open(store).close()


def register(folder: str) -> None:
    registry.register(Path(folder), "mine")


def promote(reference: str) -> None:
    model = registry.resolve(reference)
    registry.set_default(model, reason="a test")


# A crowd


def write(store: str, number: int, until: float, most: int) -> tuple[int, bool]:
    """Adds batches of 100 timings to a run of its own, and points to its curve, up to `most`
    batches or the moment `until` (of time.monotonic), while its heartbeat is written, and imports
    a batch: how many it added, and whether the import was the first."""
    with Store.open(store) as opened:
        batches = 0
        job.BEAT_SECONDS = 0.01
        with Job(opened, "collect", {"by": number}) as run:
            while batches < most and (batches < 1 or time.monotonic() < until):
                opened.add(run.id, batch(batches % 50))
                batches += 1
                run.tell({"batches": batches})
                opened.add_points(run.id, "loss", [(batches, 0.5)])
            new = opened.import_table(imported(), key="k", spec={}).new
        return batches, new


def read(store: str, until: float, least: int) -> tuple[int, list[str]]:
    """Reads until the moment, and `least` times: how often, and what was wrong. Each answer must
    be of whole batches, none fewer than before."""
    times, wrong, before = 0, [], 0
    with Store.open(store, read_only=True) as opened:
        while times < least or time.monotonic() < until:
            try:
                counted, found = opened.stats().timings, len(opened.read())
            except DiodeError as error:
                wrong.append(str(error))
                break
            if counted % 100 or found % 100:
                wrong.append(f"half a batch: {counted}, {found}")
            if not before <= counted <= found:
                wrong.append(f"fewer than before: {before}, {counted}, {found}")
            before, times = found, times + 1
    return times, wrong


def import_many(store: str, rows: int) -> float:
    """Imports so many timings: the seconds from the first of them to the last."""
    moments = []
    with Store.open(store) as opened:
        opened.import_table(
            table(rows // 100, 100), key="many", spec={},
            progress=lambda *_: moments.append(time.monotonic()),
        )  # fmt: skip
    return moments[-1] - moments[0]


def check(store: str) -> tuple[str, ...]:
    return soundness.check(Path(store)).problems


def as_another_user(commands: list[tuple[object, ...]], home: str) -> list[object]:
    """Runs them as nobody where we are root, who may write everything."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    os.environ["DIODE_HOME"] = home
    return [command(*words) for words in commands]

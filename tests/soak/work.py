"""What children do (see `children`), and the tables that they do it with."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path

import numpy as np

from diode_engine import registry
from diode_engine.cli import db as _db  # noqa: F401  # commands import theirs when called
from diode_engine.cli import main
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.errors import DiodeError
from diode_engine.store import Store, import_dataset, query, soundness

_NOBODY = 65534
ENVIRONMENT = Environment(H200, "570.1", "2.13.0", "3.7.1")


def table(problems: int, candidates: int, *, first: int = 0) -> TimingTable:
    """Every candidate on every problem, one in seven failed; `first` numbers the first problem."""
    n = problems * candidates
    failed = np.arange(n) % 7 == 3
    time_us = np.where(failed, np.nan, np.random.default_rng(first).lognormal(3, 1, n))
    return TimingTable(
        tuple(Problem.make("mm", first + i + 1, 64, 96, "bfloat16") for i in range(problems)),
        (
            Candidate.make("aten::mm"),
            *(Candidate.make("triton::mm", num_warps=i) for i in range(candidates - 1)),
        ),
        (ENVIRONMENT,),
        problem=np.repeat(np.arange(problems, dtype=np.int32), candidates),
        candidate=np.tile(np.arange(candidates, dtype=np.int32), problems),
        environment=np.zeros(n, dtype=np.int32),
        min_us=time_us,
        median_us=time_us * 1.01,
        spread_us=0.1 * time_us,
        repeats=np.where(failed, 0, 30).astype(np.int32),
        failure=np.where(failed, FAILURES.index(Failure.TIMEOUT) + 1, 0).astype(np.uint8),
    )


def content(path: Path) -> list[object]:
    """All that a store says of its timings, in a form that can be compared."""
    with Store.open(path, read_only=True) as store:
        found = store.read()
        rows = sorted(
            (
                found.problems[found.problem[i]].key,
                found.candidates[found.candidate[i]].key,
                found.environments[found.environment[i]].key,
                repr(found.timing(i)),
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


def write(store: str, number: int, until: float, most: int) -> int:
    """Adds batches of 100 timings to a run of its own, and points to its curve, up to `most`
    batches or the moment `until` (of time.monotonic); how many it added."""
    with Store.open(store) as opened:
        run = opened.start_run("collect", {"by": number})
        batches = 0
        while batches < most and (batches < 1 or time.monotonic() < until):
            opened.add(run, table(4, 25, first=8 * (batches % 50)))
            batches += 1
            opened.update_run(run, progress={"batches": batches})
            opened.add_points(run, "loss", [(batches, 0.5)])
        opened.finish_run(run, "done")
        return batches


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

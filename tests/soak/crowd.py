"""Many processes at one store: nothing is lost, and nobody sees half of anything."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from diode_engine.core.table import TimingTable
from diode_engine.location import location_of
from diode_engine.store import RunState, Store, soundness
from tests.samples import timing_at
from tests.soak import work
from tests.soak.children import start


def gather(
    store: str | Path, writers: int, readers: int, home: Path, *, seconds: float, batches: int
) -> tuple[int, int]:
    """Run `writers` and `readers` at once, for `seconds`; a writer writes at most `batches`. Return
    how many timings were written and how often they were all read."""
    Store.open(store).close()
    until = time.monotonic() + seconds
    jobs = [
        *(start(work.write, str(store), i, until, batches, home=home) for i in range(writers)),
        *(start(work.read, str(store), until, 2, home=home) for _ in range(readers)),
    ]
    answers = []
    for child, hear in jobs:
        with hear:
            answers.append(hear.recv())
        child.join()
        assert child.exitcode == 0
    written, read = [n for n, _ in answers[:writers]], answers[writers:]
    assert [wrong for _, wrong in read] == [[]] * readers
    assert sum(imported for _, imported in answers[:writers]) == 1  # all import the same timings

    expected = Counter(_rows(work.imported()))
    for first in range(50):
        of = sum(n // 50 + (first < n % 50) for n in written)
        for row in _rows(work.batch(first)) if of else ():
            expected[row] += of
    with Store.open(store) as opened:
        found = opened.read()
        assert len(found) == opened.stats().timings == 100 * (sum(written) + 1)
        assert Counter(_rows(found)) == expected
        for run in opened.runs():
            if run.kind == "collect":
                n = written[int(run.spec["by"])]
                assert (run.state, run.progress["batches"]) == (RunState.DONE, n)
                assert len(opened.curves(run.id)["loss"][0]) == n
                assert len(opened.read(run=run.id)) == 100 * n
    assert soundness.check(location_of(store)).problems == ()
    return len(found), sum(times for times, _ in read)


def _rows(table: TimingTable) -> list[tuple[str, str]]:
    return [
        (table.problems[table.problem[i]].key, repr(timing_at(table, i))) for i in range(len(table))
    ]

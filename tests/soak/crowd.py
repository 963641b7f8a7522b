"""Many processes at one store: nothing is lost, and nobody sees half of anything."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from diode_engine.store import RunState, Store, soundness
from tests.soak import work
from tests.soak.children import start


def gather(
    path: Path, writers: int, readers: int, *, seconds: float, batches: int
) -> tuple[int, int]:
    """So many of each at once, for so many seconds and, each writer, at most so many batches;
    how many timings were written and how often they were all read."""
    Store.open(path).close()
    until = time.monotonic() + seconds
    home = path.with_name("home")
    jobs = [
        *(start(work.write, str(path), i, until, batches, home=home) for i in range(writers)),
        *(start(work.read, str(path), until, 2, home=home) for _ in range(readers)),
    ]
    answers = []
    for child, hear in jobs:
        with hear:
            assert hear.recv() == "begin"
            answers.append(hear.recv())
        child.join()
        assert child.exitcode == 0
    written, read = answers[:writers], answers[writers:]
    assert [wrong for _, wrong in read] == [[]] * readers

    expected: Counter[tuple[str, str]] = Counter()
    for first in range(50):
        of = sum(n // 50 + (first < n % 50) for n in written)
        table = work.table(4, 25, first=8 * first)
        for i in range(len(table) if of else 0):
            row = table.problems[table.problem[i]].key, repr(table.timing(i))
            expected[row] += of
    with Store.open(path) as store:
        found = store.read()
        assert len(found) == store.stats().timings == 100 * sum(written)
        rows = (
            (found.problems[found.problem[i]].key, repr(found.timing(i))) for i in range(len(found))
        )
        assert Counter(rows) == expected
        for run in store.runs():
            n = written[int(run.spec["by"])]
            assert (run.state, run.progress) == (RunState.DONE, {"batches": n})
            assert len(store.curves(run.id)["loss"][0]) == n
            assert len(store.read(run=run.id)) == 100 * n
    assert soundness.check(path).problems == ()
    return len(found), sum(times for times, _ in read)

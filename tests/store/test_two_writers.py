"""Two processes that write into one store at once, and a reader meanwhile: nothing is lost, and
nobody sees half of anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from diode_engine.location import location_of
from diode_engine.store import RunState, Store, soundness

BATCHES, PROBLEMS, CANDIDATES, IMPORTED = 30, 4, 25, 40
BATCH = PROBLEMS * CANDIDATES

# Both meet the same problems and candidates, so that either may be the first to name one, and
# import the same file at the end.
_WRITER = f"""
import sys
from tests_store_tables import make_table
from diode_engine.runs import Heartbeat, begin
from diode_engine.store import Store, dataset_key

with Store.open(sys.argv[1]) as store:
    run = begin(store, "collect", {{"by": sys.argv[2]}})
    with Heartbeat(store, run, seconds=0.01):
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range({BATCHES}):
            store.add(run, make_table({PROBLEMS}, {CANDIDATES}, first=i))
            store.update_run(run, progress={{"batches": i + 1}})
            store.add_points(run, "loss", [(i, 0.5)])
            print(i, flush=True)
        table = make_table({IMPORTED}, {CANDIDATES}, first=1000)
        done = store.import_table(table, key=dataset_key(table), spec={{}})
    store.finish_run(run, "done")
    print(done.new, flush=True)
"""


def test_nothing_is_lost_and_nothing_seen_in_halves(place, tmp_path, make_table, as_rows) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "tests_store_tables.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    Store.open(place).close()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(place), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )
        for name in "ab"
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()

    with Store.open(place, read_only=True) as reader:
        for i in range(BATCHES):  # each word of a writer's is a batch of it
            assert [writer.stdout.readline() for writer in writers] == [f"{i}\n"] * 2
            table, counted = reader.read(), reader.stats()
            assert 2 * (i + 1) * BATCH <= len(table) <= counted.timings
            assert (len(table) % BATCH, counted.timings % BATCH) == (0, 0), "half a batch"
    said = [writer.stdout.readline() for writer in writers]
    assert [writer.wait() for writer in writers] == [0, 0]

    assert sorted(said) == ["False\n", "True\n"]  # one of them imported the file
    expected = Counter(as_rows(make_table(IMPORTED, CANDIDATES, first=1000)))
    for i in range(BATCHES):
        for row in as_rows(make_table(PROBLEMS, CANDIDATES, first=i)):
            expected[row] += 2
    with Store.open(place) as store:
        assert Counter(as_rows(store.read())) == expected
        collections = [run for run in store.runs() if run.kind == "collect"]
        assert sorted(str(run.spec["by"]) for run in collections) == ["a", "b"]
        for run in collections:
            assert (run.state, run.progress) == (RunState.DONE, {"batches": BATCHES})
            assert len(store.curves(run.id)["loss"][0]) == BATCHES
            assert len(store.read(run=run.id)) == BATCHES * BATCH
    assert soundness.check(location_of(place)).problems == ()

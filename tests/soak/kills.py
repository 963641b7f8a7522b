"""Operations that are killed at random moments: what lies there afterwards is sound, and the same
operation again comes to the right end."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import zstandard

from diode_engine import registry
from diode_engine.store import Store, soundness, write_dataset
from diode_engine.store.schema import HEAD
from tests.soak import work
from tests.soak.children import Work, done, killed

EARLIER = Path(__file__).parents[1] / "store" / "earlier"


@dataclass(frozen=True)
class Operation:
    """`before` makes what it works on, and returns its arguments; `after` judges what lies there,
    where `over` says that it has come to its end."""

    work: Work
    before: Callable[[random.Random], tuple[object, ...]]
    after: Callable[[bool], None]


def run(operation: Operation, times: int, rng: random.Random, home: Path) -> tuple[int, int]:
    """Kills it so many times before its end, at moments drawn over a little more than its usual
    time; how many kills these were, and how often it was over before."""
    usual = []
    for _ in range(3):
        _, took = done(operation.work, *operation.before(rng), home=home)
        operation.after(True)
        usual.append(took)
    longest = 1.1 * sorted(usual)[1]
    kills = late = 0
    while kills < times:
        arguments = operation.before(rng)
        if killed(operation.work, *arguments, home=home, after=rng.uniform(0, longest)):
            kills += 1
        else:
            late += 1
            assert late < 20 + 3 * times, "it is over before it can be killed"
        operation.after(False)
        done(operation.work, *arguments, home=home)
        operation.after(True)
    return kills, late


def importing(folder: Path) -> Operation:
    """6,000 timings into a store that holds 1,000 others."""
    store, empty, file = folder / "a.db", folder / "empty.db", folder / "a.packed.zst"
    with Store.open(empty) as opened:
        opened.add(opened.start_run("collect", {}), work.table(20, 50))
    write_dataset(work.table(60, 100, first=1000), file)
    before = work.content(empty)
    shutil.copy(empty, store)
    with Store.open(store) as opened:
        opened.import_table(work.table(60, 100, first=1000), key="k", spec={})
    # Packed files keep times to the nanosecond, so that the rows are counted here.
    rows = {len(before[0]), len(work.content(store)[0])}  # type: ignore[arg-type]

    def fresh(_: random.Random) -> tuple[object, ...]:
        for left in folder.glob("a.db*"):
            left.unlink()
        shutil.copy(empty, store)
        return str(store), str(file)

    def judge(over: bool) -> None:
        assert soundness.check(store).problems == ()
        found = work.content(store)
        assert len(found[0]) in rows  # type: ignore[arg-type]
        assert not over or len(found[0]) == max(rows)  # type: ignore[arg-type]
        if len(found[0]) == min(rows):  # type: ignore[arg-type]
            assert found == before

    return Operation(work.import_file, fresh, judge)


def migrating(folder: Path) -> Operation:
    """A store of an earlier schema, opened for writing."""
    store = folder / "old.db"
    was: dict[str, object] = {}

    def fresh(rng: random.Random) -> tuple[object, ...]:
        for left in folder.glob("old.db*"):
            left.unlink()
        packed = rng.choice(sorted(EARLIER.glob("*.zst")))
        store.write_bytes(zstandard.ZstdDecompressor().decompress(packed.read_bytes()))
        was["revision"], was["rows"] = _rows(store)
        return (str(store),)

    def judge(over: bool) -> None:
        found = soundness.check(store)
        assert found.problems == ()
        assert found.revision in ([HEAD] if over else [HEAD, was["revision"]])
        assert _rows(store)[1] == was["rows"]
        backups = list(folder.glob("old.db*.bak"))
        assert len(backups) >= (found.revision == HEAD)
        for backup in backups:
            assert _rows(backup) == (was["revision"], was["rows"])

    return Operation(work.migrate, fresh, judge)


def _rows(path: Path) -> tuple[str, list[object]]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        rows = "SELECT sweep, candidate, seq, min_us, median_us, failure FROM timings ORDER BY 1, 2"
        return revision, connection.execute(rows).fetchall()


def registering(model: Path) -> Operation:
    """A model into a registry that has the same under earlier versions."""

    def fresh(_: random.Random) -> tuple[object, ...]:
        if len(_own()) > 5:
            shutil.rmtree(_own()[0].source.root)
        was["versions"] = len(_own())
        return (str(model),)

    was = {"versions": 0}

    def judge(over: bool) -> None:
        models = _own()
        for each in models:
            registry.verify(each)
        now = len(models) - was["versions"]
        assert now >= 1 if over else now in (0, 1)
        assert not models or registry.resolve("mine").version == len(models)

    return Operation(work.register, fresh, judge)


def promoting(model: Path) -> Operation:
    """Another version is made the default."""
    first, second = (registry.register(model, "mine") for _ in range(2))
    registry.set_default(first)
    state = {"was": first, "wanted": second}

    def fresh(_: random.Random) -> tuple[object, ...]:
        was = registry.default_for(first.slug)
        state["was"] = was
        state["wanted"] = first if was == second else second
        return (state["wanted"].reference,)

    def judge(over: bool) -> None:
        default = registry.default_for(first.slug)
        assert default in ([state["wanted"]] if over else [state["was"], state["wanted"]])
        registry.verify(default)
        registry.history(first.slug)

    return Operation(work.promote, fresh, judge)


def _own() -> list[registry.ModelVersion]:
    return [model for model in registry.list_models() if model.own]

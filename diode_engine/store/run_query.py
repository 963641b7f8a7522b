"""Pages of runs, counts of what a run has written, and the values that queries can name."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from diode_engine.store import schema
from diode_engine.store.fields import RUN_PROBLEMS, RUNS
from diode_engine.store.query import MAX_ROWS
from diode_engine.store.run_table import read_runs
from diode_engine.store.runs import ENDED, Run, RunState
from diode_engine.store.session import OpenStore
from diode_engine.store.summaries import TimingCounts, count_timings

_E = schema.environments.c


@dataclass(frozen=True)
class RunContents(TimingCounts):
    """Counts of what a run has written."""

    problems: int


def runs(
    store: OpenStore, query: str = "", *, before: int | None = None, limit: int = MAX_ROWS
) -> list[Run]:
    """A page of the runs, the newest first. For the next page, give the number of the page's last
    run as `before`.

    The store alone does not know whether a run that has not ended is alive. So where the query asks
    for the state of a run that has not ended, all such runs are returned, and
    `diode_engine.runs.find` decides."""
    wanted = RUNS.parse(query)
    select = sa.select(schema.runs).where(*wanted.conditions)
    if "state" in wanted.computed:
        stored = {RunState(state) for state in wanted.computed["state"]}
        if not stored <= set(ENDED):
            stored |= {RunState.QUEUED, RunState.RUNNING}
        select = select.where(schema.runs.c.state.in_(map(str, stored)))
    if before is not None:
        select = select.where(schema.runs.c.id < before)
    select = select.order_by(schema.runs.c.id.desc()).limit(min(limit, MAX_ROWS))
    with store.reads() as connection:
        return read_runs(connection, select)


def resumed_runs(store: OpenStore) -> frozenset[int]:
    """The runs that later ones continue."""
    resumes = schema.runs.c.resumes
    with store.reads() as connection:
        return frozenset(connection.scalars(sa.select(resumes).where(resumes.is_not(None))))


def run_contents(store: OpenStore, run: int) -> RunContents:
    """Counts what a run has written; all 0 where there is no such run."""
    with store.reads() as connection:
        counts = count_timings(connection, run)
        problems = connection.scalar(sa.select(RUN_PROBLEMS).where(schema.runs.c.id == run)) or 0
    environments = tuple(sorted(counts.by_environment, key=lambda each: -each[1]))
    return RunContents(**{**vars(counts), "by_environment": environments}, problems=int(problems))


def known_values(store: OpenStore) -> dict[str, list[str]]:
    """The values that the store has for fields without choices of their own, by the fields' names;
    for `Language.suggest`."""
    columns = {
        "gpu": _E.name,
        "torch": _E.torch,
        "triton": _E.triton,
        "driver": _E.driver,
        "tag": schema.tags.c.tag,
        "kind": schema.runs.c.kind,
        "host": schema.runs.c.host,
        "user": schema.runs.c.user,
    }
    with store.reads() as connection:
        return {
            name: [v for v in connection.scalars(sa.select(c).distinct().order_by(c)) if v]
            for name, c in columns.items()
        }

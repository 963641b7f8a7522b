"""All timings of one candidate on one problem, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from diode_engine.core.hardware import Environment
from diode_engine.core.timing import KERNEL_FACTS, Failure, KernelFacts, Timing
from diode_engine.store import schema
from diode_engine.store.ingest import failure_reasons
from diode_engine.store.records import environment_of, few_records
from diode_engine.store.session import OpenStore


@dataclass(frozen=True)
class CandidateTiming:
    """A timing, with the number and kind of the run that took it and the environment it was taken
    in."""

    run: int
    kind: str
    environment: Environment
    timing: Timing


def timings_of(store: OpenStore, problem: str, candidate: str) -> list[CandidateTiming]:
    """Return the timings of the candidate on the problem, both given by their content keys, in the
    order in which the store got them. Raises StoreError where the store cannot be read."""
    s, t, k = schema.sweeps.c, schema.timings.c, schema.kernels.c
    facts = sa.and_(k.sweep == t.sweep, k.candidate == t.candidate)
    query = (
        sa.select(
            s.run, schema.runs.c.kind, s.environment, t.min_us, t.median_us, t.spread_us, t.repeats,
            t.failure, *(k[name] for name in KERNEL_FACTS),
        )
        .select_from(schema.sweeps)
        .join(schema.problems, schema.problems.c.id == s.problem)
        .join(schema.runs, schema.runs.c.id == s.run)
        .join(schema.timings, t.sweep == s.id)
        .join(schema.candidates, schema.candidates.c.id == t.candidate)
        .outerjoin(schema.kernels, facts)
        .where(schema.problems.c.key == problem, schema.candidates.c.key == candidate)
        .order_by(s.id, t.seq)
    )  # fmt: skip
    with store.reads() as connection:
        rows = connection.execute(query).all()
        places = {row.environment for row in rows}
        environments = few_records(connection, schema.environments, places, environment_of)
        reasons = {number: reason for reason, number in failure_reasons(connection).items()}
    found = []
    for row in rows:
        timing = Timing(
            min_us=row.min_us, median_us=row.median_us, spread_us=row.spread_us,
            repeats=row.repeats,
            failure=None if row.failure is None else Failure(reasons[row.failure]),
            kernel=None if row.registers is None
            else KernelFacts(*(getattr(row, name) for name in KERNEL_FACTS)),
        )  # fmt: skip
        found.append(CandidateTiming(row.run, row.kind, environments[row.environment], timing))
    return found

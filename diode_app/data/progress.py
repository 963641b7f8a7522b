"""How far a run is, by what it tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diode_engine.runs import Status


def fraction(status: Status) -> float | None:
    """The part of its work that a run has done, by what it tells of itself."""
    if status.state == "done":
        return 1.0
    progress = status.run.progress or {}
    told = as_number(progress.get("fraction"))  # of the whole run, whatever its stages
    if told is not None:
        return min(1.0, max(0.0, told))
    for done, of in (("timings", "candidates"), ("done", "total")):
        part, whole = as_number(progress.get(done)), as_number(progress.get(of))
        if part is not None and whole:
            return min(1.0, part / whole)
    return None


def seconds_left(status: Status) -> float | None:
    """As the run tells, else at its mean pace so far."""
    told = as_number((status.run.progress or {}).get("seconds_left"))
    if told is not None:
        return told
    part = fraction(status)
    return status.seconds * (1 - part) / part if part else None


def remarks(status: Status) -> str:
    """The person's note, and what the run itself has said, in one line."""
    said = filter(None, (status.run.note, status.why or status.run.message))
    return " · ".join(said).replace("\n", " ")


def as_number(value: object) -> float | None:
    """What a run has told, None where that is no number."""
    return float(value) if isinstance(value, int | float) else None

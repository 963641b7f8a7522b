"""How far a run is, by what it tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diode_engine.runs import Status


_MOST = 0.99  # of a run that has not ended


def fraction(status: Status) -> float | None:
    """The part of its work that a run has done, by what it tells of itself."""
    if status.state == "done":
        return 1.0
    progress = status.run.progress or {}
    told = as_number(progress.get("fraction"))  # of the whole run, whatever its stages
    if told is not None:
        return min(_MOST, max(0.0, told + (_MOST - told) * _expected(status)))
    for done, of in (("timings", "candidates"), ("done", "total")):
        part, whole = as_number(progress.get(done)), as_number(progress.get(of))
        if part is not None and whole:
            return min(1.0, part / whole)
    return None


def _expected(status: Status) -> float:
    """The part that is over of what a run cannot tell while it is at it, such as one large
    transaction, by how long it expected it to take."""
    progress = status.run.progress or {}
    since, seconds = as_number(progress.get("since")), as_number(progress.get("seconds_expected"))
    if since is None or not seconds:
        return 0.0
    return min(1.0, max(0.0, (status.seen.timestamp() - since) / seconds))


def seconds_left(status: Status) -> float | None:
    """As the run tells, else at its mean pace so far."""
    progress = status.run.progress or {}
    told = as_number(progress.get("seconds_left"))
    if told is not None:
        return told
    expected = as_number(progress.get("seconds_expected"))
    if expected is not None:
        return max(1.0, expected * (1 - _expected(status)))
    part = fraction(status)
    return status.seconds * (1 - part) / part if part else None


def remarks(status: Status) -> str:
    """The person's note, and what the run itself has said, in one line."""
    said = filter(None, (status.run.note, status.why or status.run.message))
    return " · ".join(said).replace("\n", " ")


def as_number(value: object) -> float | None:
    """What a run has told, None where that is no number."""
    return float(value) if isinstance(value, int | float) else None

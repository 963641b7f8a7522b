"""How far a run is, from the progress that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diode_app import text

if TYPE_CHECKING:
    from diode_engine.runs import Status


_MAX_SHARE = 0.99  # of a run that has not ended


def fraction(status: Status) -> float | None:
    """Return the share of its work that a run has done."""
    if status.state == "done":
        return 1.0
    progress = status.run.progress or {}
    told = as_number(progress.get("fraction"))  # of the whole run, whatever its stages
    if told is not None:
        return min(_MAX_SHARE, max(0.0, told + (_MAX_SHARE - told) * _expected(status)))
    for done, of in (("timings", "candidates"), ("done", "total")):
        part, whole = as_number(progress.get(done)), as_number(progress.get(of))
        if part is not None and whole:
            return min(1.0, part / whole)
    return None


def _expected(status: Status) -> float:
    """For a step that cannot report progress, such as one large transaction: the time since it
    began divided by the time that the run expected it to take, at most 1. Otherwise 0."""
    progress = status.run.progress or {}
    since, seconds = as_number(progress.get("since")), as_number(progress.get("seconds_expected"))
    if since is None or not seconds:
        return 0.0
    return min(1.0, max(0.0, (status.seen.timestamp() - since) / seconds))


def seconds_left(status: Status) -> float | None:
    """Seconds until the run is done: as the run says, else by its mean pace so far. None where that
    is not known, or the run has ended."""
    if status.state.ended:
        return None
    progress = status.run.progress or {}
    told = as_number(progress.get("seconds_left"))
    if told is not None:
        return told
    expected = as_number(progress.get("seconds_expected"))
    if expected is not None:
        return max(1.0, expected * (1 - _expected(status)))
    part = fraction(status)
    return status.seconds * (1 - part) / part if part else None


def outcome(status: Status) -> str:
    """Return the state as it is shown: a promotion that the gate has refused is not just done."""
    is_refused = status.state == "done" and (status.run.progress or {}).get("refused")
    return "refused" if is_refused else str(status.state)


def describe_progress(status: Status) -> str:
    """Return what a run's progress says besides how far it is."""
    run, progress = status.run, status.run.progress or {}
    words: list[str] = []
    if run.kind == "train" and "member" in progress and not status.state.ended:
        words = [
            f"{progress['member']}: {progress.get('step')} of {progress.get('steps')}, efficiency "
            f"{text.number(as_number(progress.get('efficiency')), 3)}"
        ]
        if rate := as_number(progress.get("rate")):
            words.append(f"{rate:.3g} steps/s")
        if stages := progress.get("stages"):
            words.append(f"fit {progress.get('stage')} of {stages}")
        return " · ".join(words)
    if (doing := progress.get("doing")) and not status.state.ended:
        words.append(str(doing))
    if status.state == "queued":
        words.append("starts")
    if run.kind == "train":
        return " · ".join(words)
    if (problems := progress.get("problems")) is not None and run.kind == "collect":
        words.append(
            f"{progress.get('problems_done', 0):,} of {text.quantity(problems, 'problems')}"
        )
        for name, label in (
            ("problems_refused", "refused"), ("problems_elsewhere", "left to another collection"),
        ):  # fmt: skip
            if count := progress.get(name):
                words.append(f"{count:,} {label}")
        if lost := progress.get("workers_lost"):
            words.append(f"{text.quantity(lost, 'workers')} lost")
    if rate := as_number(progress.get("rate")):
        words.append(f"{rate:.3g} timings/s")
    return " · ".join(words)


def headline(status: Status) -> str:
    """Return a run in one line: how far it is and how long it will take, or how it ended."""
    progress = status.run.progress or {}
    if how_it_ended := status.why or status.run.message:
        return how_it_ended
    words = [describe_progress(status)]
    if not status.state.ended:
        part, left = fraction(status), seconds_left(status)
        if not words[0] and part is not None:
            words.append(text.percent(part))
        if left is not None:
            words.append(f"{text.seconds(left)} left")
    if failed := sum((progress.get("failures") or {}).values()):
        words.append(f"{failed:,} failed")
    return " · ".join(filter(None, words))


def remarks(status: Status) -> str:
    """Return the person's note and the run's own message, in one line."""
    parts = filter(None, (status.run.note, status.why or status.run.message))
    return " · ".join(parts).replace("\n", " ")


def as_number(value: object) -> float | None:
    """Return the number in a run's progress; None where it is not a number."""
    return float(value) if isinstance(value, int | float) else None

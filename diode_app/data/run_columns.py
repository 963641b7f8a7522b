"""The columns of the list of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.run_results import Listed, as_number, fraction, outcome, remarks, seconds_left
from diode_app.data.tables import Column

if TYPE_CHECKING:
    from diode_engine.runs import Status

# Fields of a spec that have a column of their own, or that do not say how runs differ.
_NOT_SETTINGS = frozenset({
    "family", "query", "dataset", "hardware", "name", "fine_tune", "default", "gpu", "key", "file",
    "timings", "version",
})  # fmt: skip


def changed_settings(status: Status) -> dict[str, Any]:
    """Return the settings of a run that differ from the defaults."""
    return {
        name: value
        for name, value in status.run.spec.items()
        if name not in _NOT_SETTINGS and value not in (None, False, "", 0, "0", [], ())
    }


def show_efficiency(run: Listed) -> str:
    """Return the efficiency, in brackets where it is not on held-out problems."""
    shown = text.ratio(run.efficiency)
    return shown if run.is_judged or not shown else f"({shown})"


def _gpus(run: Listed) -> str:
    found = run.progress.get("gpus")
    if not isinstance(found, Mapping):
        return ""
    machines = {gpu.get("node") for gpu in found.values()} - {None, ""}
    return f"{len(found)} on {len(machines)}" if machines else " ".join(map(str, found))


def _show_progress(part: float | None) -> str:
    return "" if part is None else f"{text.bar(part, 8)} {100 * part:3.0f} %"


# In the order in which they are shown by default. Where there is no room, the highest rank goes
# first.
RUN_COLUMNS = (
    Column("mark", "", "● marked for comparison, in the colour of its curves; ★ pinned",
           of=lambda r: r.mark, sortable=False),
    Column("run", "run", "its number, for links such as run/11", of=lambda r: r.run, right=True),
    Column("kind", "kind", "collect, train, validate, import, …", of=lambda r: r.status.run.kind,
           rank=1),
    Column("state", "state", "queued, running, cancelling, done, failed, cancelled, or dead: its "
           "process is gone", text.state, of=lambda r: outcome(r.status), state=True),
    Column("progress", "progress", "the part of its work that is done, in %", _show_progress,
           of=lambda r: fraction(r.status), rank=3),
    Column("rate", "rate", "timings a second, over the last minute",
           lambda rate: f"{rate:.3g}/s" if rate else "",
           of=lambda r: as_number(r.progress.get("rate")), rank=13, right=True),
    Column("left", "time left", "time until it is done, at its pace so far",
           lambda left: "" if left is None else text.seconds(left),
           of=lambda r: seconds_left(r.status), rank=4),
    Column("duration", "duration", "how long it has worked", text.seconds,
           of=lambda r: r.status.seconds, rank=7),
    Column("family", "family", "the kind of model that a training makes, or the model that it "
           "tunes", of=lambda r: r.family, rank=5),
    Column("efficiency", "of best", "of a training's or a validation's model on held-out problems, "
           "a geometric mean; 1 is as fast as the best kernel that was measured. In brackets: of a "
           "member that is being fitted, on problems that it is not fitted to", text.ratio,
           of=lambda r: r.efficiency, rank=2, right=True),
    Column("against", "± pinned", "its efficiency minus that of the pinned training; only where "
           "both were judged on the same problems", text.difference, of=lambda r: r.difference,
           rank=6, right=True),
    Column("model", "model", "what a training registered, or a validation judged",
           of=lambda r: r.model, rank=10),
    Column("data", "data", "the filter query, the source or the file that it works on",
           of=lambda r: r.data, rank=11),
    Column("changed", "changed settings", "the settings that differ from the defaults", text.pairs,
           of=lambda r: changed_settings(r.status), sortable=False, rank=12),
    Column("gpu", "GPU", "the numbers of the GPUs that it times on", of=_gpus, sortable=False,
           rank=15),
    Column("started", f"started ({text.zone()})", "month, day and time",
           lambda at: f"{at.astimezone():%m-%d %H:%M}", of=lambda r: r.status.run.started,
           rank=14),
    Column("host", "host", "the machine that it works, or has worked, on", rank=16,
           of=lambda r: r.status.run.process and r.status.run.process.host),
    Column("user", "user", "who started it, by the name that they have on that machine",
           of=lambda r: r.status.run.user, rank=17),
    Column("tags", "tags", "your tags", " ".join, of=lambda r: r.status.run.tags, rank=9),
    Column("note", "note", "your note, else how it ended", of=lambda r: remarks(r.status), rank=8),
)  # fmt: skip

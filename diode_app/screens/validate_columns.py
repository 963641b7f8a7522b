"""The columns of a validation report's tables."""

from __future__ import annotations

from diode_app.data.report_view import SORTABLE
from diode_app.widgets.table import Column

FIGURES = (
    Column("chooser", "who chooses"),
    Column("geomean", "of best", right=True),
    Column("p10", "p10", right=True),
    Column("worst", "worst", right=True),
    Column("within", "≤5 %", right=True),
    Column("fifth", "top-5", right=True),
    Column("speed", "speed", right=True),
    Column("timed", "timed", right=True),
    Column("problems", "problems", right=True),
)
BAR = Column("bar", "of the best measured time", sortable=False)
GROUPS = (
    Column("group", "group"),
    Column("problems", "problems", right=True),
    Column("ours", "A", right=True),
    Column("theirs", "B", right=True),
    Column("difference", "A − B", right=True),
    Column("better", "A better", right=True),
    Column("worse", "B better", right=True),
    Column("p10", "A p10", right=True),
    Column("their_p10", "B p10", right=True),
    Column("within", "A ≤5 %", right=True),
    Column("their_within", "B ≤5 %", right=True),
)
CASES = (
    Column("problem", "problem"),
    Column("dtype", "dtype"),
    Column("efficiency", "A", right=True),
    Column("other", "B", right=True),
    Column("difference", "A − B", right=True),
    Column("sure", "sure", right=True),
    Column("chosen", "chosen"),
    Column("chosen_us", "µs", right=True),
    Column("chosen_predicted_us", "pred.", right=True),
    Column("best", "best"),
    Column("best_us", "µs", right=True),
    Column("best_predicted_us", "pred.", right=True),
    Column("layout", "layout"),
    Column("part", "part"),
)
REPORTS = tuple(
    Column(key, label, sortable=key in SORTABLE, right=right, state=key == "state")
    for key, label, right in (
        ("run", "run", True),
        ("judged", "judged", False),
        ("efficiency", "of best", True),
        ("problems", "problems", True),
        ("state", "state", False),
        ("started", "started (UTC)", False),
        ("tags", "tags", False),
        ("note", "note", False),
    )
)

"""The columns of a validation report's tables."""

from __future__ import annotations

from diode_app import text
from diode_app.data.report_view import SORTABLE
from diode_app.widgets.table_columns import TableColumn

FIGURES = (
    TableColumn("chooser", "who chooses"),
    TableColumn("geomean", "of best", right=True),
    TableColumn("p10", "p10", right=True),
    TableColumn("worst", "worst", right=True, rank=3),
    TableColumn("within", "≤5 %", right=True, rank=2),
    TableColumn("fifth", "top-5", right=True, rank=4),
    TableColumn("speed", "speed", right=True, rank=1),
    TableColumn("timed", "timed", right=True, rank=5),
    TableColumn("problems", "problems", right=True, rank=6),
)
BAR = TableColumn("bar", "of the best measured time", sortable=False)
GROUPS = (
    TableColumn("group", "group"),
    TableColumn("problems", "problems", right=True, rank=3),
    TableColumn("ours", "A", right=True),
    TableColumn("theirs", "B", right=True, rank=1),
    TableColumn("difference", "A − B", right=True, rank=2),
    TableColumn("better", "A better", right=True, rank=4),
    TableColumn("worse", "B better", right=True, rank=5),
    TableColumn("p10", "A p10", right=True, rank=6),
    TableColumn("their_p10", "B p10", right=True, rank=7),
    TableColumn("within", "A ≤5 %", right=True, rank=8),
    TableColumn("their_within", "B ≤5 %", right=True, rank=9),
)
CASES = (
    TableColumn("problem", "problem"),
    TableColumn("dtype", "dtype", rank=4),
    TableColumn("efficiency", "A", right=True),
    TableColumn("other", "B", right=True, rank=2),
    TableColumn("difference", "A − B", right=True, rank=3),
    TableColumn("sure", "sure", right=True, rank=5),
    TableColumn("chosen", "chosen", rank=1),
    TableColumn("chosen_us", "µs", right=True, rank=6),
    TableColumn("chosen_predicted_us", "pred.", right=True, rank=7),
    TableColumn("best", "best", rank=8),
    TableColumn("best_us", "µs", right=True, rank=9),
    TableColumn("best_predicted_us", "pred.", right=True, rank=10),
    TableColumn("layout", "layout", rank=11),
    TableColumn("part", "part", rank=12),
)
REPORTS = tuple(
    TableColumn(key, label, sortable=key in SORTABLE, right=right, state=key == "state", rank=rank)
    for rank, (key, label, right) in enumerate((
        ("run", "run", True),
        ("judged", "judged", False),
        ("efficiency", "of best", True),
        ("problems", "problems", True),
        ("state", "state", False),
        ("started", f"started ({text.zone()})", False),
        ("tags", "tags", False),
        ("note", "note", False),
    ))
)  # fmt: skip

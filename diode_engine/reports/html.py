"""A program's report as a page for a browser: one file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from diode_engine.documents import shortened
from diode_engine.plain_text import format_number
from diode_engine.reports.record import Report
from diode_engine.reports.text import Row, format_us, render_heading, rows_of, summarize

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color-scheme: light dark }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid #8884 }
th:nth-child(n+4), td:nth-child(n+4) { text-align: right; font-variant-numeric: tabular-nums }
code { font-size: .9em; overflow-wrap: anywhere }
meter { width: 6rem }
dt { float: left; clear: left; width: 9rem; font-weight: 600 }
dd { margin-left: 9rem }
"""
_HEADER = (
    "product", "in the model", "kernel, and why", "count", "µs", "library's µs", "saved µs", "sure",
)  # fmt: skip


def render_page(report: Report) -> str:
    """Return the report as an HTML page, with all rows and places."""
    rows = rows_of(report)
    facts = {
        "GPU": report.hardware,
        "model": report.model or "none",
        "fingerprint": report.fingerprint or "unknown",
        "Diode": f"{report.diode}, {'on' if report.active else f'off: {report.reason}'}",
        "torch": f"{report.torch}, Triton {report.triton}",
        "made": report.created,
    }
    listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    said = "".join(f"<p>{escape(each)}</p>" for each in (*summarize(report), *report.notes))
    header = "".join(f"<th>{name}</th>" for name in _HEADER)
    most = max((row.saved_us for row in rows), default=0.0)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(render_heading(report))}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(shortened(report.program))}</h1>{said}"
        f"<table><thead><tr>{header}</tr></thead><tbody>"
        + "\n".join(_row(report, row, most) for row in rows)
        + f"</tbody></table><dl>{listed}</dl></body></html>\n"
    )


def _row(report: Report, row: Row, most: float) -> str:
    product = row.first
    phases = f"<br>{escape(', '.join(row.phases))}" + (", dynamic" if product.dynamic else "")
    bar = f'<br><meter max="{most:.6g}" value="{max(row.saved_us, 0):.6g}"></meter>' if most else ""
    cells: Sequence[str] = (
        f"<code>{escape(product.name)}</code>{phases}",
        _places(row),
        f"<code>{escape(row.kernel)}</code><br>{escape(product.why)}",
        str(row.count),
        format_number(product.predicted_us),
        format_number(product.library_us),
        f'<span title="{format_us(row.saved_us)}">{format_number(row.saved_us)}</span>{bar}',
        format_number(product.confidence, ".2f"),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _places(row: Row) -> str:
    """Return the places in short, which open to all of them with their lines of code."""
    lines = [
        f"<li>{place.count} × {escape(place.module or '?')} ({escape(place.kind)})<br>"
        f"<code>{escape(place.file)}:{place.line}<br>{escape(place.code)}</code></li>"
        for product in row.products
        for place in product.places
    ]
    short = escape(", ".join(row.places) or "unknown")
    return f"<details><summary>{short}</summary><ul>{''.join(lines)}</ul></details>"

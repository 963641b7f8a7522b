"""A report as a figure. Needs matplotlib (`pip install diode-engine[figures]`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diode_engine.atomic import FileKind, check_writable, whole_file
from diode_engine.errors import TrainingError, explain_os_error

if TYPE_CHECKING:
    from diode_engine.validation.report import Report

FORMATS = (".svg", ".png", ".pdf")
_INCHES = (13, 9)
_MIN_EFFICIENCY = 0.5  # efficiencies below are at the left edge
_SHOWN = ("op", "dtype", "M", "layout", "dimension")  # not each named transformer


def check(path: Path) -> None:
    """Raises TrainingError where no figure could be drawn into this file."""
    if path.suffix.lower() not in FORMATS:
        raise TrainingError(f"{path} cannot hold a figure; end its name in {', '.join(FORMATS)}.")
    with explain_os_error(TrainingError, f"{path} cannot be written"):
        check_writable(path, FileKind.FIGURE)
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        raise TrainingError(
            "Drawing needs matplotlib, which is not installed: pip install 'diode-engine[figures]'."
        ) from None


def draw(report: Report, path: Path) -> None:
    """The distribution of efficiencies, by chooser; how sure the model is and how often that was
    so; the model and others by group. The same report gives the same bytes of SVG.

    Raises TrainingError as `check` does, or where the file cannot be written.
    """
    check(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "diode", "svg.fonttype": "none"}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplot_mosaic([["curves", "groups"], ["sure", "groups"]])
        _distribution(report, axes["curves"])
        _reliability(report, axes["sure"])
        _groups(report, axes["groups"])
        seen = {True: "unseen problems", False: "problems seen in training", None: "problems"}
        figure.suptitle(
            f"{report.model}: {report.problems} {seen[report.unseen]}, "
            f"{', '.join(report.hardware)}, geometric mean {report.efficiency:.3f}"
        )
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        with (
            explain_os_error(TrainingError, f"{path} cannot be written"),
            whole_file(path, kind=FileKind.FIGURE) as file,
        ):
            figure.savefig(file, format=path.suffix[1:].lower(), metadata=metadata)


def _distribution(report: Report, axes: Any) -> None:
    ours = [case.efficiency[1] for case in report.cases if case.efficiency is not None]
    curves = {report.model: ours} | {
        row.chooser: [c.others[row.chooser] for c in report.cases if row.chooser in c.others]
        for row in report.choosers[1:]
    }
    for name, values in curves.items():
        share = np.arange(1, len(values) + 1) / len(values)
        width = 2.5 if name == report.model else 1.2
        axes.step(np.sort(values), share, where="post", label=name, linewidth=width)
    axes.set(xlim=(_MIN_EFFICIENCY, 1), ylim=(0, 1), ylabel="share of problems at or below")
    axes.set_xlabel("efficiency of the first choice: best measured time / its time")
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)


def _reliability(report: Report, axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="how often it was")
    axes.set_xlabel("how sure the model is of being within 5 %")
    axes.grid(alpha=0.3)
    if report.calibration is None:
        axes.text(0.5, 0.5, "The model does not say how sure it is.", ha="center", va="center")
        return
    bins = report.calibration.bins
    sure, reached = [b.confidence for b in bins], [b.reached for b in bins]
    # One standard error of a share.
    error = [np.sqrt(b.confidence * (1 - b.confidence) / b.problems) for b in bins]
    axes.errorbar(sure, reached, yerr=error, marker="o", capsize=3)
    axes.set_title(
        f"expected calibration error {report.calibration.error:.3f} "
        f"(chance {report.calibration.chance:.3f})"
    )


def _groups(report: Report, axes: Any) -> None:
    found = [
        (name, summary)
        for kind, groups in report.choosers[0].groups.items()
        for name, summary in groups.items()
        if kind in _SHOWN
    ]
    places = np.arange(len(found))[::-1]
    axes.barh(
        places, [summary.geomean for _, summary in found], height=0.6, alpha=0.5, label=report.model
    )
    for row, marker in zip(report.choosers[1:3], ("D", "|"), strict=False):
        there = {name: s.geomean for groups in row.groups.values() for name, s in groups.items()}
        # Where a chooser has no answer on any problem of a group: NaN, which is not drawn.
        x = [there.get(name, np.nan) for name, _ in found]
        axes.scatter(x, places, marker=marker, zorder=3, label=row.chooser, color="black")
    axes.set_yticks(places, [f"{name} ({summary.problems})" for name, summary in found])
    axes.set_xlim(_MIN_EFFICIENCY, 1)
    axes.set_xlabel("geometric mean of the efficiency, by group (problems)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3)
    axes.grid(alpha=0.3, axis="x")

"""Draw README's picture of results from the measured rows of the zoo: for each program its speed
over plain torch.compile, and how long it compiles in units of plain's. Needs matplotlib.

    python docs/draw_results.py

A dot is a program; a dashed line is the geometric mean of a way's programs, where they are ten or
more. docs/write_figures.py reads the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from write_figures import DIODE, SEARCH, read_programs

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "results.svg"
WAYS = {
    DIODE: ("Diode", "#0072B2", -0.14),
    SEARCH: ("max-autotune", "#D55E00", 0.14),
}  # colours that the colour-blind can tell apart (Okabe and Ito)
_INCHES = (10.0, 5.2)
_MIN_FOR_MEAN = 10  # models; the mean of fewer would be read as that of all

Row = Mapping[str, Any]


def draw(found: Sequence[Row]) -> Figure:
    groups = sorted({row["group"] for row in found})
    figure = Figure(figsize=_INCHES, layout="constrained")
    speed, compiling = figure.subplots(1, 2, sharey=True)
    for way, (name, colour, offset) in WAYS.items():
        those = [row for row in found if row["way"] == way]
        if those:
            _dots(speed, groups, those, [1 / r["ratio"] for r in those], colour, offset, name)
            timed = [row for row in those if row["compile_ratio"]]
            ratios = [row["compile_ratio"] for row in timed]
            _dots(compiling, groups, timed, ratios, colour, offset, name)
    speed.set_xlabel("speed of a step over plain torch.compile (more is better)")
    compiling.set_xlabel("compile time in units of plain torch.compile's (less is better)")
    for axes in (speed, compiling):
        axes.set_xscale("log")
        axes.axvline(1, color="0.6", linewidth=1, zorder=0)
        axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    speed.set_xticks([0.8, 1, 1.25, 1.5, 2, 3, 5])
    compiling.set_xticks([0.5, 1, 2, 5, 10, 20, 50])
    speed.set_yticks(range(len(groups)), groups)
    speed.invert_yaxis()
    figure.legend(*speed.get_legend_handles_labels(), loc="outside upper center", ncols=len(WAYS))
    return figure


def _dots(
    axes: Axes,
    groups: Sequence[str],
    those: Sequence[Row],
    values: Sequence[float],
    colour: str,
    offset: float,
    name: str,
) -> None:
    places = np.array([groups.index(row["group"]) for row in those]) + offset
    label = f"{name}: {len(those)} models"
    axes.scatter(values, places, s=14, color=colour, alpha=0.55, linewidths=0, label=label)
    if len(those) < _MIN_FOR_MEAN:
        return
    mean = float(np.exp(np.mean(np.log(values))))
    axes.axvline(mean, color=colour, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"{mean:.2f}", (mean, 0), xycoords=("data", "axes fraction"), xytext=(3, 4),
        textcoords="offset points", color=colour,
    )  # fmt: skip


def main() -> None:
    with mpl.rc_context({"svg.hashsalt": "diode", "svg.fonttype": "none", "font.size": 9}):
        draw([row for way in WAYS for row in read_programs()[way].values()]).savefig(
            PICTURE, metadata={"Date": None}
        )


if __name__ == "__main__":
    main()

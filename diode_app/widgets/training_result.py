"""The result of a training, as a page of text."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.data.training_result import BASE, TrainingResult

_BAR = 30
_MIN_SHOWN = 0.5  # where a bar of an efficiency begins


class TrainingResultPage(Static):
    """Its headline, what others reach on the same problems as bars, and the rest as facts."""

    DEFAULT_CSS = "TrainingResultPage { height: auto; padding: 0 1; }"

    def show(self, result: TrainingResult) -> None:
        lines = [
            Content.assemble(
                (result.model, "bold"),
                f" reaches {result.efficiency:.3f} of the best kernels' speed on "
                f"{result.held_out:,} problems that it has not seen (geometric mean)",
            ),
            Content(""),
        ]
        width = max(len(name) for name, _ in result.bars)
        colours = {result.model: "$primary", BASE: "$secondary"}
        for name, value in result.bars:
            filled = text.bar((value - _MIN_SHOWN) / (1 - _MIN_SHOWN), _BAR).rstrip("░")
            style = "bold" if name == result.model else ""
            colour = colours.get(name, "$panel-lighten-2")
            lines.append(
                Content.assemble((f"{name:<{width}} {value:.3f} ", style), (filled, colour))
            )
        lines.append(Content(""))
        width = max(len(name) for name, _ in result.facts)
        lines += [
            Content.assemble((f"{name:<{width}}  ", "$text-muted"), value)
            for name, value in result.facts
        ]
        self.update(Content("\n").join(lines))

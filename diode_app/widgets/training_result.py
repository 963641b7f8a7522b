"""The result of a training, as a page of text."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.data.training_result import TrainingResult

_BAR = 30
_MIN_SHOWN = 0.5  # where a bar of an efficiency begins


class TrainingResultPage(Static):
    """Its headline, what others reach on the same problems as bars, and the rest as facts."""

    DEFAULT_CSS = "TrainingResultPage { height: auto; padding: 0 1; }"

    def show(self, result: TrainingResult) -> None:
        r = result
        bars = [
            (r.model, r.efficiency, "$primary"),
            *((n, v, "$panel-lighten-2") for n, v in r.others),
        ]
        if r.base is not None:
            bars.insert(1, ("the model it was tuned from", r.base, "$secondary"))
        bars.sort(key=lambda bar: -bar[1])
        width = max(len(name) for name, _, _ in bars)
        lines = [
            Content.assemble(
                (r.model, "bold"),
                f" reaches {r.efficiency:.3f} of the best kernels' speed on {r.held_out:,} "
                "problems that it has not seen (geometric mean)",
            ),
            Content(""),
        ]
        for name, value, colour in bars:
            filled = text.bar((value - _MIN_SHOWN) / (1 - _MIN_SHOWN), _BAR).rstrip("░")
            own = "bold" if name == r.model else ""
            lines.append(
                Content.assemble(
                    (f"{name:<{width}} ", own), (f"{value:.3f} ", own), (filled, colour)
                )
            )
        lines += [Content(""), *_facts(r)]
        self.update(Content("\n").join(lines))


def _facts(r: TrainingResult) -> list[Content]:
    facts = [
        ("worst tenth", f"below {r.p10:.3f}; the worst problem {r.worst:.3f}"),
        ("best of k", ", ".join(f"{value:.3f} of {k}" for k, value in r.top)),
        ("error", "" if r.log_rmse is None else f"{r.log_rmse:.3f} of the logarithm of times"),
        ("confidence", "" if r.calibration_error is None else _calibration(r)),
        ("made for", r.hardware),
        ("made from", f"{r.timings:,} timings of {r.problems:,} problems"),
        *(("left out", f"{count:,} timings of {what}") for what, count in r.left_out),
        ("took", text.seconds(r.seconds)),
        ("note", r.notes),
    ]
    width = max(len(name) for name, _ in facts)
    return [
        Content.assemble((f"{name:<{width}}  ", "$text-muted"), value)
        for name, value in facts
        if value
    ]


def _calibration(r: TrainingResult) -> str:
    says = f"off by {r.calibration_error:.3f}"
    if r.calibration_by_chance is not None:
        says += f"; chance alone gives {r.calibration_by_chance:.3f}"
    return says

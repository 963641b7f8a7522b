"""The result of a training: the model, and how well it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diode_app import text

_BASE = "the model it was tuned from"


@dataclass(frozen=True)
class TrainingResult:
    """`efficiency` is that on problems that the judged model had not seen; `facts` are (name,
    value), first what all choosers reach on these problems, the best first."""

    model: str
    folder: str
    efficiency: float
    facts: tuple[tuple[str, str], ...]


def training_result(document: Mapping[str, Any] | None) -> TrainingResult | None:
    """From the result in a training's run (see `training.train.Trained`); None where there is none,
    or the run is of another kind."""
    of = (document or {}).get("metrics")
    if document is None or not isinstance(of, Mapping) or "efficiency" not in of:
        return None
    bars = {document["model"]: of["efficiency"], **(of.get("efficiency_of_others") or {})}
    if (base := of.get("efficiency_of_base")) is not None:
        bars[_BASE] = base
    top = sorted((int(k), value) for k, value in (of.get("efficiency_top") or {}).items())
    error, off, by_chance = (
        of.get(name) for name in ("log_rmse", "calibration_error", "calibration_error_by_chance")
    )
    chance = "" if by_chance is None else f"; chance alone gives {by_chance:.3f}"
    facts = [
        ("", f"{document['model']} reaches {of['efficiency']:.3f} of the best kernels' speed on "
         f"{document['held_out_problems']:,} held-out problems (geometric mean)"),
        *((name, f"{value:.3f} {_bar(value)}")
          for name, value in sorted(bars.items(), key=lambda bar: -bar[1])),
        ("worst tenth",
         f"below {of['efficiency_p10']:.3f}; the worst problem {of['efficiency_worst']:.3f}"),
        ("best of k", ", ".join(f"{value:.3f} of {k}" for k, value in top)),
        ("error", "" if error is None else f"{error:.3f} of the logarithm of times"),
        ("confidence", "" if off is None else f"off by {off:.3f}{chance}"),
        ("made for", document["hardware"]),
        ("made from", f"{document['timings']:,} timings of {document['problems']:,} problems"),
        *(("left out", f"{count:,} timings of {what}")
          for what, count in (document.get("left_out") or {}).items()),
        ("took", text.seconds(document["seconds"])),
        ("note", text.drop_usual_note(document.get("notes") or "")),
    ]  # fmt: skip
    known = tuple((name, value) for name, value in facts if value)
    return TrainingResult(document["model"], document["folder"], of["efficiency"], known)


def _bar(efficiency: float) -> str:
    """Return a bar that begins at an efficiency of 0.5."""
    return text.bar((efficiency - 0.5) / 0.5, 30).rstrip("░")

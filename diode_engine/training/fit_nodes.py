"""The progress of the fits on each machine of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diode_engine.models.fitting import FitProgress


@dataclass(frozen=True)
class NodeFitProgress(FitProgress):
    """The progress of a fit on the machine named `node`."""

    node: str


class FitNodes:
    """The machines that have reported fits. There are none where all fits are made in this
    process."""

    def __init__(self) -> None:
        self._fits: dict[str, dict[str, FitProgress]] = {}  # the last progress, by machine and fit

    def told(self, label: str, progress: FitProgress) -> None:
        """Takes a report of the fit with this label, if the fit is made on another machine."""
        if isinstance(progress, NodeFitProgress):
            fits = self._fits.setdefault(progress.node, {})
            fits.pop(label, None)
            fits[label] = progress  # at the end

    def lines(self) -> Iterator[tuple[str, str, FitProgress]]:
        """For each machine: its name; how many fits have begun there, with the label of the fit
        that has reported last; and the progress of that fit."""
        for node, fits in self._fits.items():
            label, last = next(reversed(fits.items()))
            count = f"{len(fits)} fits" if len(fits) > 1 else "1 fit"
            yield node, f"{count}; {label}", last

    def to_dict(self) -> dict[str, Any]:
        """For the progress of a run; empty where there are none."""
        if not self._fits:
            return {}
        lines = self.lines()
        return {"nodes": {node: f"{said}: {at.step} of {at.steps}" for node, said, at in lines}}

"""Which of Inductor's configs a call of FlexAttention gets: one that was fast for similar calls
that were measured.

For each kind of call and head size, a table has a few configs, and how many times as fast as
Inductor's default config each was on some measured calls. A config's speed on another call is
estimated by the geometric mean over the measured calls, weighted by a Gaussian of their distance to
that call (kernel regression: Nadaraya 1964, Watson 1964). A config is taken where it is estimated
to be faster than the default by a margin. For a call far outside of the measured ones, no config is
chosen.

`benchmarks/flex_chooser.py` makes the table of measured rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diode_engine.core.content_key import content_key
from diode_engine.core.hardware import Hardware
from diode_engine.errors import ModelError
from diode_engine.models.shipped import read_shipped, shipped_path

FORMAT = "diode-flex-attention-1"
FORWARD, BACKWARD, DECODING = "forward", "backward", "decoding"
# The fields of Inductor's config of each kind, in their order.
FIELDS = {
    FORWARD: ("block_m", "block_n", "num_stages", "num_warps"),
    BACKWARD: ("block_m1", "block_n1", "block_m2", "block_n2", "num_stages", "num_warps"),
    DECODING: ("block_n", "num_stages", "num_warps"),
}

# Chosen by leave-one-out cross-validation on the table's calls: docs/notes/flex-attention.md.
MARGIN = 1.03  # a config must be estimated to be so many times as fast as the default
WIDTH = 0.5  # of the Gaussian, in the units of `FlexCall.place`
READING = 2.0  # the distance between a mask that reads a tensor and one that does not
# A call is unknown where its length or its heads are more than so many times those of all measured
# calls, or less than the part 1/REACH of them.
REACH = 8

Config = tuple[int, ...]


class FlexChoice(NamedTuple):
    """A config, and how many times as fast as Inductor's default it is estimated to be."""

    config: Config
    speed: float


@dataclass(frozen=True)
class FlexCall:
    """What is known of a call when it is compiled. `heads` are the query's times the batch,
    `length` the keys'; `masked` is whether there is a block mask, and `reads` whether its function
    reads a tensor (the numbers of documents, say)."""

    kind: str
    head: int  # elements of a head
    dtype: str
    heads: int
    length: int
    masked: bool
    reads: bool

    @property
    def place(self) -> tuple[float, ...]:
        """Return [4] coordinates. One unit is a factor of two in length or heads, or a mask or
        none; whether the mask reads a tensor counts as READING units."""
        return math.log2(self.length), math.log2(self.heads), self.masked, READING * self.reads


@dataclass(frozen=True, eq=False)
class FlexGroup:
    """The measured calls of a kind and head size. `speeds` [calls, configs] are times as fast as
    with `default`, Inductor's own config."""

    kind: str
    head: int
    dtypes: tuple[str, ...]
    default: Config
    configs: tuple[Config, ...]
    calls: tuple[FlexCall, ...]
    speeds: npt.NDArray[np.float64]

    def chosen(self, call: FlexCall) -> FlexChoice | None:
        """Return the config to take: the default where no other is faster by the margin, and None
        where no similar call was measured. Raises ModelError where an estimated speed is not
        finite."""
        away = np.array([other.place for other in self.calls]) - np.array(call.place)
        beyond = math.log2(REACH)
        if (away[:, :2].min(axis=0) > beyond).any() or (away[:, :2].max(axis=0) < -beyond).any():
            return None
        squares = (away * away).sum(axis=1)
        weights = np.exp((squares.min() - squares) / (2 * WIDTH**2))
        estimated = weights @ np.log(self.speeds) / weights.sum()
        if not np.isfinite(estimated).all():
            raise ModelError("The table of FlexAttention's configs gives no speeds.")
        best = int(estimated.argmax())
        if estimated[best] <= math.log(MARGIN):
            return FlexChoice(self.default, 1.0)
        return FlexChoice(self.configs[best], math.exp(estimated[best]))

    def to_dict(self) -> dict[str, Any]:
        """Return the group as JSON has it."""
        return {
            "kind": self.kind,
            "head": self.head,
            "dtypes": list(self.dtypes),
            "default": list(self.default),
            "configs": [list(config) for config in self.configs],
            "calls": [
                [call.dtype, call.heads, call.length, int(call.masked), int(call.reads), list(row)]
                for call, row in zip(self.calls, self.speeds.tolist(), strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> FlexGroup:
        """Return the inverse of `to_dict`. Raises ModelError where parts do not fit each other."""
        kind, head = given["kind"], given["head"]
        calls = tuple(
            FlexCall(kind, head, dtype, heads, length, bool(masked), bool(reads))
            for dtype, heads, length, masked, reads, _ in given["calls"]
        )
        default, configs = tuple(given["default"]), tuple(map(tuple, given["configs"]))
        speeds = np.array([speeds for *_, speeds in given["calls"]], np.float64)
        if not (
            speeds.shape == (len(calls), len(configs)) and speeds.size
            and np.all((speeds > 0) & (speeds < np.inf))
            and all(call.heads >= 1 and call.length >= 1 for call in calls)
            and {len(config) for config in (default, *configs)} == {len(FIELDS.get(kind, ""))}
        ):  # fmt: skip
            raise ModelError(f"The configs of {kind} calls do not fit their times.")
        return cls(kind, head, tuple(given["dtypes"]), default, configs, calls, speeds)


@dataclass(frozen=True, eq=False)
class FlexTable:
    """The groups of one GPU. `source` says what was measured, and how."""

    hardware: str
    source: str
    groups: tuple[FlexGroup, ...]

    @cached_property  # Inductor asks some twenty times a compile
    def identity(self) -> str:
        """The content key, for the keys of Inductor's caches."""
        rules = {"margin": MARGIN, "width": WIDTH, "reading": READING, "reach": REACH}
        return content_key("flex", {**self.to_dict(), **rules})

    def group(self, kind: str, head: int, dtype: str) -> FlexGroup | None:
        """Return the group of such calls; None where none were measured."""
        for group in self.groups:
            if (group.kind, group.head) == (kind, head) and dtype in group.dtypes:
                return group
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON has it."""
        made = {"format": FORMAT, "hardware": self.hardware, "source": self.source}
        return {**made, "groups": [group.to_dict() for group in self.groups]}

    def to_json(self) -> str:
        """As a file has it: a line for each measured call."""
        found = json.dumps(self.to_dict())
        return found.replace('{"kind"', '\n{"kind"').replace(']], ["', ']],\n["') + "\n"

    @classmethod
    def from_json(cls, data: str | bytes) -> FlexTable:
        """Return the inverse of `to_json`."""
        given = json.loads(data)
        groups = tuple(map(FlexGroup.from_dict, given["groups"]))
        return cls(given["hardware"], given["source"], groups)


def path_for(hardware: Hardware) -> Path:
    """Return where the shipped table for a GPU would be; not every GPU has one."""
    return shipped_path(hardware, "flex-attention.json")


def table_for(hardware: Hardware) -> FlexTable | None:
    """Return the shipped table; None where this GPU was not measured. Raises ModelError."""
    return read_shipped(path_for(hardware), FlexTable.from_json)

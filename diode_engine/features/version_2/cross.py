"""Columns that depend on problem, candidate and device together; each group of them is a module.
All arithmetic is in float32, which is exact for whole numbers up to 2²⁴."""

from __future__ import annotations

from diode_engine.core.hardware import Hardware
from diode_engine.core.resources import Array
from diode_engine.features.version_2.candidate import Knobs
from diode_engine.features.version_2.device import Device
from diode_engine.features.version_2.loads import loads
from diode_engine.features.version_2.occupancy import occupancy
from diode_engine.features.version_2.problem import ProblemFacts
from diode_engine.features.version_2.roofline import roofline
from diode_engine.features.version_2.rows import NAMES, Rows
from diode_engine.features.version_2.tiles import tiles

__all__ = ["NAMES", "fill"]


def fill(facts: Array, knobs: Array, hardware: Hardware, out: Array) -> None:
    """Fills `out` [NAMES, n] from [ProblemFacts, n] (or [ProblemFacts, 1]) and [Knobs, n]."""
    p, c, device, rows = ProblemFacts(*facts), Knobs(*knobs), Device.make(hardware), Rows(out)
    of_tiles = tiles(p, c, device, rows)
    of_loads = loads(p, c, of_tiles, rows)
    resident = occupancy(p, c, of_tiles, of_loads, device, rows)
    roofline(p, c, of_tiles, of_loads, resident, device, rows)
    rows.take_logs()

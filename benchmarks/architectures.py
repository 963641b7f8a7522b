"""Other programs than the zoo's, to be lowered as its models are: the harvest's forward passes."""

from __future__ import annotations

from dataclasses import replace

from harvest_models.programs import all_programs
from zoo_models.record import Model


def models() -> list[Model]:
    """The programs as models of the zoo, in the harvest's order, which a time limit may cut. TF32
    and dynamic sizes take turns."""
    programs = [program for program in all_programs() if not program.train]
    return [
        replace(
            program.in_zoo()[0], group="architecture", dynamic=turn % 8 in (2, 5),
            tf32=program.single and turn % 2 == 0,
        )
        for turn, program in enumerate(programs)
    ]  # fmt: skip

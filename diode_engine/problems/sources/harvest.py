"""Products of real programs: the shipped harvest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.problems.harvested import harvest, held_out_family

SIDES = ("all", "learned", "held-out")


@dataclass(frozen=True)
class Harvested:
    """Products of models of transformers, timm and torchvision. Products that occur in more
    programs come sooner. `families` and `kinds` say which ones are taken; empty means all. `side`
    is "learned" for sizes that no held-out family has, "held-out" for sizes that one has, or "all".
    """

    families: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    side: str = "all"

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise CollectionError(
                f"The source harvest has no side {self.side!r}; it has {', '.join(SIDES)}."
            )
        known = harvest().families
        if unknown := sorted(set(self.families) - set(known)):
            raise CollectionError(
                f"There is no family {unknown[0]!r} in the harvest; there are "
                f"{', '.join(sorted(known))}."
            )
        there = {family.kind for family in known.values()}
        if unknown := sorted(set(self.kinds) - there):
            raise CollectionError(
                f"There is no kind {unknown[0]!r} in the harvest; there are "
                f"{', '.join(sorted(there))}."
            )

    def problems(self, seed: int) -> Iterator[Problem]:
        """Each product once. Places are drawn so that a product that occurs in twice as many
        programs is twice as likely to come next (Efraimidis and Spirakis, 2006)."""
        rng = random.Random(f"harvest/{seed}")
        places = {
            problem: rng.expovariate(found.programs)
            for problem, found in harvest().found.items()
            if self._wants(problem, found.families)
        }
        yield from sorted(places, key=places.__getitem__)

    def _wants(self, problem: Problem, families: frozenset[str]) -> bool:
        known = harvest().families
        return (
            (not self.families or not families.isdisjoint(self.families))
            and (not self.kinds or any(known[name].kind in self.kinds for name in families))
            and (self.side == "all" or held_out_family(problem) == (self.side == "held-out"))
        )

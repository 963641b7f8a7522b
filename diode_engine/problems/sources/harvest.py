"""Products of real programs: the shipped harvest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from diode_engine.core.problem import Problem
from diode_engine.problems.harvested import harvest, is_of_held_out_family
from diode_engine.problems.sources.drawing import check_names

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
        known = harvest().families
        kinds = sorted({family.kind for family in known.values()})
        check_names((self.side,), SIDES, "The source harvest has no side")
        check_names(self.families, sorted(known), "The harvest has no family")
        check_names(self.kinds, kinds, "The harvest has no kind")

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
            and (self.side == "all" or is_of_held_out_family(problem) == (self.side == "held-out"))
        )

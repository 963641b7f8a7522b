"""The spaces that Inductor offers, kept: those of two problems are often the same.

What a Triton template is offered depends on the sizes only as far as they are small (a tile is
not larger than the problem's next power of two) and on which tiles divide K. So the many GEMMs
of a model share a few spaces, and Inductor takes ten times as long to make one as a model to
rank it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from torch._inductor import config

from diode_engine.inductor.candidates import TUNABLE_KWARGS
from diode_engine.problem import Candidate

LARGEST_TILE = 256  # of the exhaustive space
# Others depend on more than what `Spaces.find` tells apart.
_KEPT = frozenset({"triton::mm", "triton::bmm"})


@dataclass(frozen=True, eq=False)
class Space:
    """What templates are offered: of each candidate the template's uid and its params, which a
    KernelTemplateChoice can be made from."""

    candidates: tuple[Candidate, ...] = ()
    uids: tuple[str, ...] = ()
    params: tuple[Any, ...] = ()

    def __add__(self, other: Space) -> Space:
        return Space(
            self.candidates + other.candidates, self.uids + other.uids, self.params + other.params
        )


class Spaces:
    """The spaces of the templates that were asked for so far. Safe to use from any thread: a
    space is stored whole."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Space] = {}
        self._candidates: dict[tuple[Any, ...], Candidate] = {}

    def find(
        self,
        op_name: str,
        kernel_inputs: Any,
        uids: Sequence[str],
        overrides: str,
        sizes: tuple[int, int, int],
        offered: Callable[[str], Iterable[Any]],
    ) -> Space:
        """What is offered for a problem of these static sizes M, N and K; `offered` makes the
        KernelTemplateChoices of one template."""
        found = Space()
        for uid in uids:
            if uid not in _KEPT:
                found += self.of(offered(uid))
                continue
            key = (
                uid, op_name, overrides, *_class_of(*sizes), *kernel_inputs.dtypes(),
                kernel_inputs.out_dtype(), kernel_inputs.device(), *_settings(),
            )  # fmt: skip
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = self.of(offered(uid))
            found += kept
        return found

    def of(self, choices: Iterable[Any]) -> Space:
        """That of KernelTemplateChoices. Equal candidates are one object in all spaces, which
        makes comparing two of them quick."""
        listed = list(choices)
        return Space(
            tuple(self._candidate(choice) for choice in listed),
            tuple(choice.template.uid for choice in listed),
            tuple(choice.params for choice in listed),
        )

    def _candidate(self, choice: Any) -> Candidate:
        """As `candidate_of`."""
        kwargs = choice.params.to_kwargs()
        tunable = tuple((name, kwargs[name]) for name in kwargs if name in TUNABLE_KWARGS)
        key = (choice.template.uid, tunable)
        candidate = self._candidates.get(key)
        if candidate is None:
            made = Candidate.make(choice.template.uid, **dict(tunable))
            candidate = self._candidates.setdefault(key, made)
        return candidate


def _class_of(m: int, n: int, k: int) -> tuple[int, ...]:
    """Problems of one class are offered the same."""
    clamps = (min(LARGEST_TILE, 1 << (size - 1).bit_length()) for size in (m, n, k))
    return (*clamps, gcd(k, LARGEST_TILE))


def _settings() -> tuple[Any, ...]:
    """The options that a space depends on, apart from its name."""
    return (
        config.max_autotune_prune_choices_based_on_shared_mem,
        config.test_configs.max_mm_configs,
        *getattr(config, "multi_kernel_hints", ()),
    )

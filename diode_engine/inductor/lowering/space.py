"""What Inductor offers for a problem, as columns from which a model predicts times.

For a Triton template Inductor offers its heuristic's exhaustive list of configs, cut to the
problem: no tile is larger than the next powers of two of the sizes, and duplicates and configs that
would spill registers are dropped. To do this, and to make the parameters of about 1,400 kernels,
takes Inductor ten times as long as a model needs to rank them. So the list is read once and cut
here, with numpy, and Inductor's heuristic gets only the chosen configs. It must make the kernels
from them that were ranked. Where it does not, as with a torch that cuts in another way, Inductor is
asked for its own list.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from torch._inductor import config
from torch._inductor.utils import get_k_splits

from diode_engine.core.encoding import CandidateTable
from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.candidates import candidate_from, candidate_of
from diode_engine.inductor.torch_internals.templates import exhaustive_configs
from diode_engine.inductor.torch_internals.versions import part, template_heuristic

_TILE = ("block_m", "block_n", "block_k", "num_stages", "num_warps", "group_m")
_MIN_TILE = 16
_MAX_ACCUMULATORS = 255  # 32-bit registers per thread; beyond that Inductor drops a config
_CACHE_SIZE = 64  # spaces; a program's problems share a few


@contextmanager
def search_space(name: str) -> Iterator[None]:
    """The search space from which Inductor's generators read their configs: `name` is EXHAUSTIVE
    (what Diode chooses among) or DEFAULT."""
    with config.patch(max_autotune_gemm_search_space=name):
        get_k_splits.cache_clear()  # its cache does not distinguish the spaces
        try:
            yield
        finally:
            get_k_splits.cache_clear()


class NotOffered(Exception):
    """Inductor would not offer what was ranked."""


@dataclass(frozen=True, eq=False)
class OfferedSpace:
    """What the templates offer. `kernel` returns the name of the template of the candidate at an
    index, and makes the parameters of its KernelTemplateChoice; it must be called inside
    `search_space("EXHAUSTIVE")`, and raises NotOffered where Inductor does not offer the
    candidate."""

    candidates: CandidateTable
    kernel: Callable[[int], tuple[str, Any]]


class Spaces:
    """The spaces of the templates that were asked for so far. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], _Configs] = {}

    def find(
        self,
        op_name: str,
        kernel_inputs: Any,
        uids: Sequence[str],
        sizes: tuple[int, int, int],
        offered: Callable[[str], Iterable[Any]],
        *,
        by_list: bool = False,
        scaled: bool = True,
    ) -> OfferedSpace:
        """Return what is offered for a problem with these M, N and K. `offered` makes the
        KernelTemplateChoices of one template; with `by_list` it makes those of all. Without
        `scaled` the sizes may be larger than those of the `kernel_inputs`: the parameters have the
        candidate's tile, which Inductor would make smaller."""
        by_list = by_list or _limited()

        def space_of(uid: str) -> OfferedSpace:
            configs = None if by_list else self._configs(uid, op_name, kernel_inputs)
            if configs is None:
                return space_of_choices(offered(uid))
            return configs.offer(op_name, kernel_inputs, sizes, scaled)

        return _join([space for space in map(space_of, uids) if len(space.candidates)])

    def _configs(self, uid: str, op_name: str, kernel_inputs: Any) -> _Configs | None:
        """Return the configs of a template, if the template is offered with all configs of its list
        and nothing else; else None."""
        if not template_of(uid).space_for(op_name).cut_from_list:
            return None
        heuristic = template_heuristic(uid, kernel_inputs.device_type, op_name)
        known = self._lists.get((uid, op_name))
        if known is None or not known.are_of(heuristic):
            known = _Configs.read(uid, heuristic)
            if known is not None:
                self._lists[uid, op_name] = known
        return known


def space_of_choices(choices: Iterable[Any]) -> OfferedSpace:
    """Return the space of KernelTemplateChoices that Inductor has made."""
    offered = list(choices)
    return OfferedSpace(
        _table(tuple(map(candidate_of, offered))),
        lambda place: (offered[place].template.uid, offered[place].params),
    )


def _join(spaces: Sequence[OfferedSpace]) -> OfferedSpace:
    """Return the space of all candidates of the spaces, one space after another."""
    starts = [0, *accumulate(len(space.candidates) for space in spaces)]

    def kernel(place: int) -> tuple[str, Any]:
        number = bisect_right(starts, place) - 1
        return spaces[number].kernel(place - starts[number])

    return OfferedSpace(_joined(tuple(space.candidates for space in spaces)), kernel)


_table = lru_cache(_CACHE_SIZE)(CandidateTable.make)
_joined = lru_cache(_CACHE_SIZE)(CandidateTable.joined)


def _limited() -> bool:
    """Return whether options are set under which it depends on the other configs whether one is
    offered."""
    return config.test_configs.max_mm_configs is not None or bool(
        part(config, "multi_kernel_hints")
    )


class _Configs:
    """The exhaustive configs of a template's heuristic. `tiles` is [6, n], with the rows of
    CandidateTable.tiled."""

    def __init__(
        self, uid: str, heuristic: Any, configs: list[Any], tiles: npt.NDArray[np.int64]
    ) -> None:
        self._uid = uid
        self._heuristic = heuristic
        self._source = heuristic.exhaustive_configs
        self._configs = configs
        self._tiles = tiles
        self._largest = tiles[:3].max(axis=1).tolist()
        self._cut = lru_cache(_CACHE_SIZE)(self._cut_to)

    @classmethod
    def read(cls, uid: str, heuristic: Any) -> _Configs | None:
        """Return the configs of this heuristic; None where they have another form."""
        configs = exhaustive_configs(heuristic)
        known = {*_TILE, "hint_override"}
        if not configs or any(
            {f.name for f in fields(t)} != known for t in set(map(type, configs))
        ):
            return None
        if any(each.hint_override is not None for each in configs):
            return None
        values = chain.from_iterable(map(attrgetter(*_TILE), configs))
        tiles = np.fromiter(values, np.int64, len(configs) * len(_TILE)).reshape(-1, len(_TILE))
        return cls(uid, heuristic, configs, np.ascontiguousarray(tiles.T))

    def are_of(self, heuristic: Any) -> bool:
        """Return whether they were read from this heuristic, and it still has the same list."""
        return (
            heuristic is self._heuristic
            and getattr(heuristic, "exhaustive_configs", None) is self._source
        )

    def offer(
        self, op_name: str, kernel_inputs: Any, sizes: tuple[int, int, int], scaled: bool
    ) -> OfferedSpace:
        """Return what is offered for these sizes; `scaled` is as in `Spaces.find`."""
        table, places = self._cut(
            *(
                min(largest, max(_MIN_TILE, 1 << (size - 1).bit_length()))
                for size, largest in zip(sizes, self._largest, strict=True)
            )
        )
        kernel = partial(self.kernel, kernel_inputs, op_name, table, places, scaled)
        return OfferedSpace(table, kernel)

    def _cut_to(self, *reach: int) -> tuple[CandidateTable, list[int]]:
        """As Inductor's preprocess_mm_configs, in its order, with the index of each config."""
        tiles = self._tiles.copy()
        blocks, warps = tiles[:3], tiles[4]
        np.clip(blocks, _MIN_TILE, np.array(reach)[:, None], out=blocks)
        area = blocks[0] * blocks[1]
        places = np.flatnonzero(-(-area // (32 * warps)) <= _MAX_ACCUMULATORS)
        np.minimum(warps, area // 256, out=warps)  # a warp computes at least 16×16
        tiles = tiles[:, places]
        names = np.ravel_multi_index(tuple(tiles), tuple(tiles.max(axis=1, initial=0) + 1))
        first = np.sort(np.unique(names, return_index=True)[1])
        table = CandidateTable.tiled(self._uid, np.ascontiguousarray(tiles[:, first]))
        return table, places[first].tolist()

    def kernel(
        self, kernel_inputs: Any, op_name: str, table: CandidateTable, places: list[int],
        scaled: bool, place: int,
    ) -> tuple[str, Any]:  # fmt: skip
        """Return the template, and the parameters that Inductor makes from one config alone. Raises
        NotOffered where they are not those of the ranked candidate."""
        alone = copy.copy(self._heuristic)
        config = self._configs[places[place]]
        if not scaled:
            alone.should_scale_configs = False
            tile = table[place].tile or {}
            config = replace(config, **{name: tile[name] for name in _TILE[:3]})
        alone.exhaustive_configs = [config]
        made = list(alone.get_template_configs(kernel_inputs, op_name))
        if [candidate_from(self._uid, each) for each in made] != [table[place]]:
            raise NotOffered(f"it does not offer {table[place]}")
        return self._uid, made[0]

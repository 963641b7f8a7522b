"""What Diode knows of one kernel template of Inductor: the record that the table is made of.

A template knows sizes, not products. What depends on the operator, on types or on layouts is
decided by the code that asks (resources, kernel classes, spaces), from the fields below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

# The columns by which candidates are compared (core/encoding.py), each with its value for a kernel
# without that parameter. A kernel without a tile counts as one with the tile of a usual cuBLAS
# kernel, so that features of tiles have a meaning for it.
COLUMNS: Mapping[str, int] = MappingProxyType(
    {
        "block_m": 128,
        "block_n": 128,
        "block_k": 64,
        "stages": 3,
        "warps": 4,
        "group_m": 8,
        "k_split": 1,
    }
)
TILE = ("block_m", "block_n", "block_k")

# Parameters of Triton's tiled templates: Inductor's names, and the columns that hold them.
TILE_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "BLOCK_M": "block_m",
        "BLOCK_N": "block_n",
        "BLOCK_K": "block_k",
        "num_stages": "stages",
        "num_warps": "warps",
        "GROUP_M": "group_m",
    }
)
SPLIT_PARAMETERS: Mapping[str, str] = MappingProxyType({"k_split": "k_split"})
# Parameters of tiled templates that no column holds.
OTHER_PARAMETERS = frozenset(
    {
        "EPILOGUE_SUBTILE", "WARP_SPECIALIZE", "FLATTEN",  # Blackwell
        "matrix_instr_nonkdim", "waves_per_eu", "kpack",  # ROCm
    }
)  # fmt: skip
# Inductor's option without which it offers no template that loads through TMA descriptors.
TMA_OPTION = "triton.enable_persistent_tma_matmul"

Configs = tuple[tuple[int, ...], ...]  # each config's values, in the order of the parameters
Grid = tuple[int, int, int]
Version = tuple[int, int]  # of torch


@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """What Inductor offers of a template, in its search spaces DEFAULT and EXHAUSTIVE."""

    # Replaces sizes by fewer ones with the same configs. The functions below get its result.
    reach: Callable[[int, int, int], tuple[int, int, int]] = lambda m, n, k: (m, n, k)
    default_configs: Callable[[int, int, int, Version], Configs] = lambda m, n, k, torch: ()
    exhaustive_configs: Callable[[int, int, int], Configs] = lambda m, n, k: ()
    # Whether Inductor has a list of configs and cuts it to the sizes, as inductor's space.py does;
    # else Inductor is asked for its list for each problem.
    cut_from_list: bool = False
    offered: Callable[[Any], bool] = lambda problem: True  # whether it is offered for this problem


@dataclass(frozen=True, eq=False, kw_only=True)
class Template:
    """One template. Only the first two fields must be given; the others say what is special."""

    name: str  # Inductor's uid
    ops: tuple[str, ...]  # the operators for which Inductor offers it
    label: str = ""  # a shorter name, for narrow tables
    # What it is, if not a template of Inductor, which renders it as one or several kernels.
    extern: bool = False  # the library's call (cuBLAS through ATen), as in plain torch.compile
    own: bool = False  # a call that Diode adds (inductor/lowering/sources)

    # The parameters that may be tuned. What follows from the problem, the device or torch's
    # version (EVEN_K, ALLOW_TF32, NUM_SMS, …) is not among them, so that a kernel has the same
    # name everywhere.
    parameters: Mapping[str, str] = field(default_factory=dict)  # and the column of each
    other_parameters: frozenset[str] = frozenset()  # those that no column holds
    required: tuple[str, ...] = ()  # without these a candidate's columns mean nothing

    tiled: bool = False  # a thread block computes one tile at a time, of a size that can be tuned
    tma: bool = False  # loads through TMA descriptors
    persistent: bool = False  # launches at most one thread block for each multiprocessor
    fuses_epilogue: bool = False  # Inductor fuses pointwise ops that follow the product into it
    fuses_prologue: bool = False  # Inductor fuses pointwise ops on the inputs into its loads
    # Inductor's option without which it is not offered; empty: offered by default. A choice of such
    # a template is not remembered, since options are not part of a choice's key.
    option: str = ""
    # The first torch in which its kernels are right; with an older torch Diode never takes one.
    right_from: Version = (0, 0)

    # Whether it is a library's call that takes a bias vector as a vector, without a copy.
    bias_vector: bool = False
    # The name under which a library's call is recorded when it was given the bias as a vector.
    recorded_with_bias_vector: str = ""

    # Sizes ("B", "M", "N", "K") that are constants in every binary. Problems with equal constants
    # (and what kernel_class.py adds) share a binary. None: binaries are not shared.
    constants: frozenset[str] | None = None
    # Whether the template's source depends on whether rows (columns) of a block are contiguous; for
    # a shared binary this is decided when it is rendered.
    asks_contiguous: bool = False
    # The names of the kernel's arguments, and what is passed (see symbolic.Rendered in inductor).
    arguments: Mapping[str, str] = field(default_factory=dict)
    # (B, M, N, kwargs, multiprocessors): the thread blocks of a launch.
    grid: Callable[[int, int, int, Mapping[str, Any], int], Grid] | None = None
    # (problem, columns, hardware): [n] bytes of shared memory that a thread block needs. None: by
    # the rule for tiles (core/resources.py), or 0 where the template is not tiled.
    shared_bytes: Callable[[Any, Any, Any], Any] | None = None

    # What Inductor offers of it: for operators that are named, and for all others.
    spaces: Mapping[str, Space] = field(default_factory=dict)
    space: Space = Space()
    # (M, N, K): whether Inductor offers only this template and libraries' kernels for these sizes.
    excludes_tiled: Callable[[int, int, int], bool] = lambda m, n, k: False

    def space_for(self, op: str) -> Space:
        """What Inductor offers of it for this operator."""
        return self.spaces.get(op, self.space)

    @property
    def short_name(self) -> str:
        return self.label or self.name

    @cached_property
    def tunable(self) -> frozenset[str]:
        """The names of all parameters."""
        return self.other_parameters.union(self.parameters)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index in COLUMNS of each parameter that has a column."""
        columns = tuple(COLUMNS)
        return {name: columns.index(column) for name, column in self.parameters.items()}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The parameter that a column holds, by the column."""
        return {column: name for name, column in self.parameters.items()}

    def tile_of(self, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The values of a candidate's kwargs by their columns; None where it has no tile."""
        if self.names.get("block_m") not in config:
            return None
        return {column: config[name] for column, name in self.names.items() if name in config}

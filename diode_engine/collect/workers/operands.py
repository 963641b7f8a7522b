"""Operands for timing: views of one large buffer of random numbers, at another place for each
launch.

The buffer is many times larger than the L2 cache, and no part of it is read again before all of it
was read. So every launch finds the cache full of other data, as in a program, and the cache need
not be flushed between launches.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch

from diode_engine.collect.workers.inputs import fill, made_inputs
from diode_engine.collect.workers.launch import Place
from diode_engine.core.operators.specification import dense
from diode_engine.core.problem import Problem

ALIGNMENT = 256  # bytes, as torch's allocator aligns
MAX_POOL_BYTES = 1 << 30
MEMORY_SHARE = 1 / 64  # of the device's memory for a pool; each process of a GPU has two pools
# Between two reads of the same memory, so many times the cache's size of other data must be read.
COLD_CACHES = 3
MAX_OUTPUTS_BYTES = 1 << 28  # of the outputs of kernels that are checked together


@dataclass(frozen=True)
class _View:
    """One operand inside the block of memory that has all operands of a launch: its size, stride
    and dtype, and its offset in the block in bytes."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int


class Pools:
    """Two buffers: random numbers for inputs, and memory for outputs. They are made when they are
    first needed, and each for one dtype at a time, since several processes share the device."""

    def __init__(self, device: torch.device, l2_bytes: int) -> None:
        self.device = device
        self.l2_bytes = l2_bytes
        total = torch.cuda.get_device_properties(device).total_memory
        self._bytes = min(MAX_POOL_BYTES, int(total * MEMORY_SHARE))
        self._tensors: dict[str, torch.Tensor] = {}

    def clear(self) -> None:
        """Frees the memory that no Operands use."""
        self._tensors.clear()
        torch.cuda.empty_cache()

    def pool(self, name: str, dtype: torch.dtype, least_bytes: int) -> torch.Tensor:
        """The buffer "in", of random numbers, or "out", of uninitialised memory, as a flat tensor
        of `least_bytes` or more."""
        size = max(self._bytes, least_bytes)
        pool = self._tensors.get(name)
        if pool is None or pool.dtype != dtype or pool.nbytes < size:
            pool = None
            self._tensors.pop(name, None)
            torch.cuda.empty_cache()
            pool = torch.empty(size // dtype.itemsize, dtype=dtype, device=self.device)
            if name != "out":
                generator = torch.Generator(self.device).manual_seed(0)
                # In parts: for some dtypes, drawing needs as much memory again.
                for part in pool.split(1 << 28):
                    fill(part, generator)
            self._tensors[name] = pool
        return pool


class Operands:
    """The places in the pools for a problem's operands and output, which are used in turn.
    `rotates` says whether the pools are so large that a place is no longer in the cache when its
    turn comes again; if not, the cache must be flushed between launches."""

    def __init__(self, problem: Problem, pools: Pools) -> None:
        p = problem
        self._dtype = getattr(torch, p.dtype)
        self._out_dtype = getattr(torch, p.out_dtype)
        self._made = made_inputs(p, pools.device)  # small, and the same at every place
        self._views: dict[str, _View] = {}
        at = 0
        for name, (size, stride, dtype) in p.input_shapes().items():
            if name not in self._made:
                self._views[name] = _View(size, stride, getattr(torch, dtype), at)
                at += _aligned(_span(size, stride) * p.dtype.itemsize)
        self._names = tuple(p.input_shapes())
        self._step = at
        shape = p.output_size
        self._out_step = _aligned(math.prod(shape) * p.out_dtype.itemsize)
        self._inputs = pools.pool("in", self._dtype, self._step)
        self._outputs = pools.pool("out", self._out_dtype, self._out_step)
        self._out = _View(shape, dense(shape), self._out_dtype, 0)
        self._sets = self._inputs.nbytes // self._step
        self._out_sets = self._outputs.nbytes // self._out_step
        # Looked up once: `next` is called for every launch.
        self._inputs_at, self._outputs_at = self._inputs.data_ptr(), self._outputs.data_ptr()
        self._offsets = tuple(view.offset for view in self._views.values())
        self._fixed = [(self._names.index(name), x.data_ptr()) for name, x in self._made.items()]
        self._turn = random.Random(p.key).randrange(self._sets)
        self._out_turn = 0
        self.rotates = self._sets * self._step >= (COLD_CACHES * pools.l2_bytes + self._step)

    def next(self) -> Place:
        """The next place in turn."""
        self._turn = (self._turn + 1) % self._sets
        self._out_turn = (self._out_turn + 1) % self._out_sets
        start = self._inputs_at + self._turn * self._step
        out = self._outputs_at + self._out_turn * self._out_step
        inputs = [start + offset for offset in self._offsets]
        for at, address in self._fixed:
            inputs.insert(at, address)
        return (*inputs, out)

    def side_by_side(self, place: Place, count: int) -> tuple[list[Place], torch.Tensor]:
        """At most `count` places with the operands of `place`, and their outputs in one tensor:
        [places, rows, columns] or [places, batch, rows, columns]."""
        count = min(count, max(1, MAX_OUTPUTS_BYTES // self._out_step), self._out_sets)
        places = [(*place[:-1], self._outputs_at + i * self._out_step) for i in range(count)]
        size, stride = self._out.size, self._out.stride
        each = self._out_step // self._out_dtype.itemsize
        return places, self._outputs.as_strided((count, *size), (each, *stride))

    def tensors(self, place: Place) -> tuple[list[torch.Tensor], torch.Tensor]:
        """(inputs in the op's order, output) at a place."""
        inputs = []
        for name, address in zip(self._names, place[:-1], strict=True):
            made = self._made.get(name)
            if made is None:
                made = _tensor(self._inputs, self._views[name], address - self._inputs_at)
            inputs.append(made)
        return inputs, _tensor(self._outputs, self._out, place[-1] - self._outputs_at)


def _tensor(pool: torch.Tensor, view: _View, start: int) -> torch.Tensor:
    """The view, `start` bytes after the pool's beginning. An operand of another 8-bit type than the
    pool's reads the same bytes as its own type."""
    return pool.view(view.dtype).as_strided(view.size, view.stride, start // view.dtype.itemsize)


def _span(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """The number of elements from a tensor's first to its last."""
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

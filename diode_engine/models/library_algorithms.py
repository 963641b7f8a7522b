"""Which of cuBLASLt's algorithms computes a product of the library.

cuBLASLt's heuristic lists some algorithms for a product, its best first, and torch takes that one.
Others of the list, and algorithms that were fast for other products, can be faster. Boosted trees
predict how many times as long as the first each of them takes, from the sizes, its tile, cluster
and other attributes, and the same of the first. `benchmarks/library_chooser.py` fits them.

cuBLASLt's matrices are column-major: its rows are N, its columns M.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diode_engine.core.content_key import content_key
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import Bias, Layout
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models.protocol import Matrix
from diode_engine.models.shipped import read_shipped, shipped_path
from diode_engine.models.tensors import Tensors

FEATURES = 70  # columns that `describe` returns
# What an algorithm must gain beside a model's margin (docs/notes/library-algorithms.md): in a batch
# or with a matrix for bias, where the trees err most, and by how much launches of a kernel differ.
_UNSURE, _NOISE_US = 0.05, 0.2
_LAUNCH_US = 2.0  # of an empty kernel
UNLISTED = 99  # the place of an algorithm that the heuristic does not list
_UNDEFINED = 1  # the rows and columns of a tile that is not known
# The blocks of a cluster, N × M, by cublasLtClusterShape_t from 2 on.
_CLUSTERS = (
    (1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (4, 4), (8, 1), (1, 8),
    (8, 2), (2, 8), (16, 1), (1, 16),
)  # fmt: skip


class Config(NamedTuple):
    """How an algorithm is described: numbers of cublasLt.h's enumerations."""

    id: int
    tile: int = 0
    stages: int = 0
    split_k: int = 1
    reduction: int = 0
    swizzle: int = 0
    custom: int = 0
    inner: int = 0
    cluster: int = 0


class Offer(NamedTuple):
    """An algorithm that cuBLASLt accepts for a product: the bytes of workspace that it needs, and
    how often its blocks fill the GPU, as cuBLASLt says, and its place in the heuristic's list."""

    config: Config
    workspace: int
    waves: float
    place: int = UNLISTED


def describe(
    problem: Problem,
    offers: Sequence[Offer],
    tiles: npt.NDArray[np.int64],
    multiprocessors: int,
) -> Matrix:
    """Return [n, F] features of the n offers, of which the first is the heuristic's first. `tiles`
    [t, 2] are the rows and columns of a tile by its number."""
    configs = np.array([offer.config for offer in offers], np.int64)
    kinds = [
        problem.a.layout is Layout.ROW,
        problem.b.layout is Layout.ROW,
        problem.bias is not Bias.NONE,
    ]
    sizes = [problem.M, problem.N, problem.K, problem.M * problem.N * problem.K, problem.B]
    same_for_all = np.array([*np.log2(sizes), *kinds, problem.dtype.itemsize, problem.allow_tf32])
    shape = _shape(problem, configs, tiles, multiprocessors)
    waves = np.array([offer.waves for offer in offers])
    workspace = np.log2(1 + np.array([offer.workspace for offer in offers], np.float64))
    first = np.array([*configs[0], waves[0]])
    places = np.array([offer.place for offer in offers])
    columns = [
        np.tile(same_for_all, (len(offers), 1)), shape, shape - shape[0], configs,
        configs == configs[0], np.tile(first, (len(offers), 1)),
        np.stack([waves, workspace, places], axis=1), _work(problem, configs, tiles),
    ]  # fmt: skip
    return np.concatenate(columns, axis=1, dtype=np.float32)


def _work(
    problem: Problem, configs: npt.NDArray[np.int64], tiles: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return [n, 7]: K of one block and the number of blocks, also over the first's; whether a
    matrix is added, the bytes, and the operations a byte."""
    split = np.maximum(configs[:, Config._fields.index("split_k")], 1)
    blocks = -(-np.array([problem.N, problem.M]) // _tile(configs, tiles))
    each = np.log2([problem.K / split, blocks.prod(axis=1) * problem.B * split]).T
    moved = problem.moved_bytes[1]
    of_all = problem.bias is Bias.MATRIX, np.log2(moved), np.log2(problem.flops / moved)
    return np.concatenate([each, each - each[0], np.tile(of_all, (len(each), 1))], axis=1)


def _tile(configs: npt.NDArray[np.int64], tiles: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    known = configs[:, Config._fields.index("tile")]
    return np.maximum(tiles[np.where(known < len(tiles), known, 0)], _UNDEFINED)


def _shape(
    problem: Problem,
    configs: npt.NDArray[np.int64],
    tiles: npt.NDArray[np.int64],
    multiprocessors: int,
) -> npt.NDArray[np.float64]:
    """Return [n, 11]: tiles, clusters, and how well the blocks fill the output and the GPU."""
    tile = _tile(configs, tiles)
    number = configs[:, Config._fields.index("cluster")] - 2
    inside = (number >= 0) & (number < len(_CLUSTERS))
    cluster = np.array(_CLUSTERS)[np.where(inside, number, 0)]
    output = np.array([problem.N, problem.M])
    blocks = -(-output // tile)
    launched = -(-blocks // cluster) * cluster
    split = np.maximum(configs[:, Config._fields.index("split_k")], 1)
    waves = launched.prod(axis=1) * problem.B * split / multiprocessors
    used = output.prod() / (launched * tile).prod(axis=1)
    full = waves / np.ceil(waves)
    return np.column_stack(
        [np.log2(tile), np.log2(tile.prod(axis=1)), np.log2((1 / tile).sum(axis=1)), cluster,
         np.log2(blocks), np.log2(waves), full, used * full]
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class AlgorithmModel:
    """Trees for the products of one GPU.

    A tree of depth d is complete: `split` and `threshold` are [t, 2^d - 1] of its inner nodes,
    level by level, and `leaf` is [t, 2^d]. A row goes right where its feature is the threshold or
    more. `base` is added to the leaves' sum. `configs` may be taken where cuBLASLt accepts them,
    beside those that it lists. `low` and `high` are the least and greatest M, N and K that were
    timed; what an algorithm must gain to be taken is `least_gain` for this `margin`.
    """

    split: npt.NDArray[np.int64]
    threshold: Matrix
    leaf: Matrix
    base: float
    configs: tuple[Config, ...]
    tiles: npt.NDArray[np.int64]
    low: tuple[float, ...]
    high: tuple[float, ...]
    margin: float
    version: int  # of cuBLASLt
    key: str = ""

    def predict(self, x: Matrix) -> npt.NDArray[np.float64]:
        """Return [n] log times over the first's, of feature rows [n, F]."""
        row, values = np.arange(len(x)) * x.shape[1], x.ravel()
        node = np.repeat(np.arange(len(self.split))[:, None], len(x), axis=1)
        for split, threshold in self._levels:
            right = values.take(row + split.take(node)) >= threshold.take(node)
            node *= 2
            node += right
        leaves: npt.NDArray[np.float64] = self.leaf.take(node).sum(0, np.float64)
        return leaves + self.base

    @cached_property
    def _levels(self) -> list[tuple[npt.NDArray[np.int64], Matrix]]:
        """The features and thresholds of each level's nodes, one tree after the other: below node i
        of a level are nodes 2 i and 2 i + 1 of the next one, or these leaves."""
        starts = [2**level - 1 for level in range(self.split.shape[1].bit_length())]
        parts = [slice(start, 2 * start + 1) for start in starts]
        return [(self.split[:, part].ravel(), self.threshold[:, part].ravel()) for part in parts]

    def knows(self, problem: Problem) -> bool:
        """Return whether products of such a size and type were timed."""
        sizes = problem.M, problem.N, problem.K
        bounds = zip(self.low, sizes, self.high, strict=True)
        fits = all(low <= size <= high for low, size, high in bounds)
        return fits and problem.dtype.itemsize == 2

    def choose(self, problem: Problem, offers: Sequence[Offer], hardware: Hardware) -> int:
        """Return the place of the offer to take; 0, the heuristic's first, where no other gains
        enough."""
        x = describe(problem, offers, self.tiles, hardware.multiprocessors)
        return choose_place(self.predict(x), least_gain(problem, hardware, self.margin))

    def to_bytes(self) -> bytes:
        """Return the file's bytes, in the safetensors format."""
        from safetensors.numpy import save

        one = {"base": self.base, "margin": self.margin, "version": self.version}
        return save(
            {name: np.array([value], np.float32) for name, value in one.items()}
            | {name: np.array(getattr(self, name), np.float32) for name in ("low", "high")}
            | {"threshold": self.threshold, "leaf": self.leaf}
            | {name: np.ascontiguousarray(getattr(self, name), np.int16)
               for name in ("split", "configs", "tiles")}
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> AlgorithmModel:
        """Return the model in a file's bytes. Raises ModelError where a tensor is missing, has
        another shape, or has values that cannot be."""
        tensors = Tensors(data, "library's algorithms")
        split = tensors.whole("split", None, None).astype(np.int64)
        count, inner = split.shape
        configs = tensors.whole("configs", None, len(Config._fields))
        made = cls(
            split, tensors.take("threshold", count, inner), tensors.take("leaf", count, inner + 1),
            float(tensors.take("base", 1)[0]),
            tuple(Config(*map(int, config)) for config in configs),
            tensors.whole("tiles", None, 2).astype(np.int64),
            tuple(map(float, tensors.take("low", 3))), tuple(map(float, tensors.take("high", 3))),
            float(tensors.take("margin", 1)[0]), int(tensors.take("version", 1)[0]),
            content_key("library-algorithms", {
                "sha256": hashlib.sha256(data).hexdigest(),
                "gain": [_UNSURE, _NOISE_US, _LAUNCH_US],
            }),
        )  # fmt: skip
        is_complete = inner > 0 and inner & (inner + 1) == 0  # each tree
        is_known = split.size and 0 <= split.min() <= split.max() < FEATURES
        if not (
            is_complete and is_known and len(made.tiles) and np.all(configs >= 0)
            and made.margin >= 1 and np.all(np.less_equal(made.low, made.high))
        ):  # fmt: skip
            raise ModelError("The model of the library's algorithms has values that cannot be.")
        return made


def least_gain(problem: Problem, hardware: Hardware, margin: float) -> float:
    """Return the least predicted speed, over that of the heuristic's first algorithm, at which
    another is taken, for a model of this margin."""
    arithmetic_us = 1e6 * problem.flops / max(hardware.peak_flops(problem.dtype), 1.0)
    memory_us = problem.moved_bytes[1] / max(hardware.memory_gb_s * 1e3, 1.0)
    least_us = _LAUNCH_US + max(arithmetic_us, memory_us)
    is_unsure = problem.B > 1 or problem.bias is Bias.MATRIX
    return margin + _UNSURE * is_unsure + _NOISE_US / least_us


def choose_place(predicted: npt.NDArray[np.float64], gain: float) -> int:
    """Return the place of the least of these log times [n]; 0, the first, where the least is not
    `gain` times as fast as the first."""
    best = int(predicted.argmin())
    return best if predicted[best] < predicted[0] - np.log(gain) else 0


def path_for(hardware: Hardware) -> Path:
    """Return where the shipped model for a GPU would be; not every GPU has one."""
    return shipped_path(hardware, "library-algorithms.safetensors")


def model_for(hardware: Hardware) -> AlgorithmModel | None:
    """Return the shipped model; None where this GPU was not measured. Raises ModelError."""
    return read_shipped(path_for(hardware), AlgorithmModel.from_bytes)

"""The model by which Diode chooses among cuBLASLt's algorithms, and how well it chooses.

    python benchmarks/library_chooser.py ROWS --tiles cublasLt.h [--judge ROWS] [--write FILE]

The rows are those of library_algorithms.py: its products for training, and layers of published
models. The model is judged by a cross-validation over them, in which layers with equal N and K stay
together, and with --judge on other rows, which must be of held-out products. Speeds are over the
heuristic's first algorithm, which torch takes, by the times of the rows. `--tiles` is NVIDIA's
header, which says what the numbers of tiles mean.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xgboost
import zstandard
from library_report import COLUMNS, error_limit, geomean

from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.models.library_algorithms import UNLISTED, AlgorithmModel, Config, Offer, describe

LEARNED = ("learning", "diffusion", "prefill", "decode", "training")  # sources
CONFIGS, NEAR = 256, 1.03  # of the model: those that were so near to the best for most products
MARGINS = (1.0, 1.01, 1.02, 1.03, 1.05)
FOLDS, TREES, DEPTH = 5, 400, 9
SLOWER = 1.03
MULTIPROCESSORS = H200.multiprocessors  # an H100 has as many


class Measured(NamedTuple):
    """A product with its algorithms, of which the first is the heuristic's."""

    problem: Problem
    offers: list[Offer]
    us: np.ndarray[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", metavar="ROWS")
    parser.add_argument("--tiles", type=Path, required=True, metavar="HEADER")
    parser.add_argument("--judge", type=Path, metavar="ROWS")
    parser.add_argument("--margin", type=float, default=1.03)
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    tiles = tiles_in(args.tiles.read_text())
    rows = [row for path in args.rows for row in read(path)]
    learned = measured(row for row in rows if row["source"] in LEARNED)
    of_fold = np.array([fold(each.problem) for each in learned])
    print(f"Cross-validation over {len(learned)} products:")
    answers = []
    for number in range(FOLDS):
        model = fitted([m for m, f in zip(learned, of_fold, strict=True) if f != number], tiles)
        judged = [m for m, f in zip(learned, of_fold, strict=True) if f == number]
        answers += [(each, predicted(model, each)) for each in judged]
    report(answers)
    model = fitted(learned, tiles, margin=args.margin, version=rows[0]["cublaslt"])
    if args.judge:
        others = measured(row for row in read(args.judge) if row["source"] not in LEARNED)
        print(f"\nOn {len(others)} held-out products:")
        report([(each, predicted(model, each)) for each in others])
    if args.write:
        args.write.write_bytes(model.to_bytes())


def read(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return [json.loads(line) for line in data.decode().splitlines()]


def tiles_in(header: str) -> np.ndarray[Any, Any]:
    """[t, 2] the rows and columns of each tile, by its number in cublasLt.h."""
    found = re.findall(r"CUBLASLT_MATMUL_TILE_(\d+)x(\d+)\s*=\s*(\d+)", header)
    tiles = np.zeros((max(int(number) for *_, number in found) + 1, 2), np.int64)
    for rows, columns, number in found:
        tiles[int(number)] = int(rows), int(columns)
    return tiles


def measured(rows: Iterable[dict[str, Any]]) -> list[Measured]:
    """The products in half precision whose heuristic's first algorithm was timed, without fused
    epilogues. (In float32 and TF32 the trees choose no better than the heuristic.) Algorithms with
    an error beyond the limit are left out."""
    each = []
    for row in rows:
        problem = Problem.from_dict(row["problem"])
        if row["error"] or row["epilogue"] or problem.dtype.itemsize != 2:
            continue
        known = [dict(zip(COLUMNS, algorithm, strict=True)) for algorithm in row["algorithms"]]
        known = [one for one in known if not one["aligned"]]
        limit = error_limit(row["error_of_torch"])
        kept = [(place, one) for place, one in enumerate(known) if one["error"] <= limit]
        if not kept or kept[0][0] or known[0]["origin"] != "listed":
            continue
        offers = [
            Offer(
                Config(*(one[name] for name in Config._fields)), one["workspace"], one["waves"],
                place if one["origin"] == "listed" else UNLISTED,
            )
            for place, one in kept
        ]  # fmt: skip
        us = np.array([one["quick_us"] for _, one in kept])
        each.append(Measured(problem, offers, us))
    return each


def fold(problem: Problem) -> int:
    return int(hashlib.sha256(f"{problem.N} {problem.K}".encode()).hexdigest(), 16) % FOLDS


def fitted(
    some: Sequence[Measured], tiles: np.ndarray[Any, Any], *, margin: float = 1.0, version: int = 0
) -> AlgorithmModel:
    x = np.concatenate([describe(m.problem, m.offers, tiles, MULTIPROCESSORS) for m in some])
    y = np.concatenate([np.log(m.us / m.us[0]) for m in some]).clip(-1, 1)
    data = xgboost.DMatrix(x, y, weight=np.exp(-6 * y.clip(0)))  # near the best it counts
    options = {"max_depth": DEPTH, "eta": 0.05, "subsample": 0.6, "colsample_bytree": 0.5,
               "min_child_weight": 2, "base_score": 0.0, "seed": 0}  # fmt: skip
    trees = xgboost.train(options, data, TREES).get_dump(dump_format="json")
    inner = 2**DEPTH - 1
    split = np.zeros((len(trees), inner), np.int64)
    threshold = np.zeros((len(trees), inner), np.float32)
    leaf = np.zeros((len(trees), inner + 1), np.float32)
    for number, text in enumerate(trees):
        complete(json.loads(text), 0, split[number], threshold[number], leaf[number])
    sizes = np.array([[m.problem.M, m.problem.N, m.problem.K] for m in some])
    return AlgorithmModel(
        split, threshold, leaf, 0.0, fast_configs(some), tiles,
        tuple(map(float, sizes.min(0))), tuple(map(float, sizes.max(0))), margin, version,
    )  # fmt: skip


def complete(node: Any, place: int, split: Any, threshold: Any, leaf: Any) -> None:
    """Writes a tree's node, at this place of the complete tree, and all below."""
    if place >= len(split):
        leaf[place - len(split)] = node["leaf"]
        return
    children = [node, node]
    if "children" in node:
        by_id = {child["nodeid"]: child for child in node["children"]}
        children = [by_id[node["yes"]], by_id[node["no"]]]
        split[place], threshold[place] = int(node["split"][1:]), node["split_condition"]
    for side, child in enumerate(children):
        complete(child, 2 * place + 1 + side, split, threshold, leaf)


def fast_configs(some: Sequence[Measured]) -> tuple[Config, ...]:
    """The algorithms that were near the best for the most products."""
    counts: dict[Config, int] = {}
    for each in some:
        near = each.us <= NEAR * each.us.min()
        for config in {offer.config for offer, ok in zip(each.offers, near, strict=True) if ok}:
            counts[config] = counts.get(config, 0) + 1
    return tuple(sorted(counts, key=lambda config: (-counts[config], config))[:CONFIGS])


def predicted(model: AlgorithmModel, each: Measured) -> np.ndarray[Any, Any]:
    """Log times over the first's; infinite where an algorithm would not be offered."""
    answer = model.predict(describe(each.problem, each.offers, model.tiles, MULTIPROCESSORS))
    offered = [o.place != UNLISTED or o.config in model.configs for o in each.offers]
    return np.where(offered, answer, math.inf)


def kind(each: Measured) -> str:
    problem = each.problem
    even = min(problem.a.align, problem.b.align) >= 8 and problem.N % 8 == 0
    return f"{'aligned' if even else 'odd'} {'over' if each.us[0] > 20 else 'under'} 20 µs"


def report(answers: Sequence[tuple[Measured, np.ndarray[Any, Any]]]) -> None:
    """Prints the speed over the heuristic's first: by margin, and of the best."""
    for name in ("all", *sorted({kind(each) for each, _ in answers})):
        some = [(m, answer) for m, answer in answers if name in ("all", kind(m))]
        best = geomean(m.us[0] / m.us.min() for m, _ in some)
        print(f"{name:24s} {len(some):5d} products, best {best:.3f}")
        for margin in MARGINS:
            speeds = []
            for m, answer in some:
                place = int(answer.argmin())
                taken = place if answer[place] < answer[0] - math.log(margin) else 0
                speeds.append(m.us[0] / m.us[taken])
            slower = sum(speed < 1 / SLOWER for speed in speeds)
            print(
                f"    margin {margin:.2f}: {geomean(speeds):.4f}, worst {min(speeds):.3f}, "
                f"{slower} slower by over 3 %, {sum(s != 1 for s in speeds)} of another algorithm"
            )


if __name__ == "__main__":
    main()

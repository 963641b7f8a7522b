"""The model by which Diode chooses among cuBLASLt's algorithms, and how well it chooses.

    python benchmarks/library_chooser.py ROWS … [--long ROWS] [--judge ROWS] [--margin M]
        [--write FILE]
    python benchmarks/regret/score.py benchmarks/library_chooser.py[:FILE] --set FILE

The rows are those of library_algorithms.py: its products for training, and layers of published
models. The model is of the GPU of the first row; what was timed on others counts less. It is judged
by a cross-validation over its GPU's products, in which layers with equal N and K stay together, and
with --judge on other rows, of held-out products, which it does not learn then. From rows of --long
it learns how much longer an algorithm takes where the GPU's power limits its clock. Speeds are over
the heuristic's first algorithm, which torch takes, by the times of the rows. What the numbers of
tiles mean is in the H100's shipped file, from NVIDIA's cublasLt.h.

For a set of cuBLASLt's algorithms this file is a chooser of regret/score.py.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import xgboost
from library_rows import config_of, right_algorithms
from processes import Row, read_rows

from diode_engine.core.hardware import KNOWN
from diode_engine.core.problem import Problem
from diode_engine.models.library_algorithms import (
    UNLISTED,
    AlgorithmModel,
    Config,
    Offer,
    choose_place,
    describe,
    least_gain,
    model_for,
)

LEARNED = ("learning", "diffusion", "prefill", "decode", "training")  # sources
CONFIGS = 64  # of the model
MARGINS = (1.0, 1.01, 1.02, 1.03, 1.05)
FOLDS, FITS, TREES, DEPTH = 5, 2, 400, 9  # of the fits the mean is taken
OTHERS = 0.3  # the weight of what was timed on another GPU
SLOWER = 1.03
LONG_TREES, LONG_DEPTH, LONG_SHARE = 50, 6, 0.5  # half: the mean of short and long turns
LEAST_LIMITED = 100  # operations a byte: of products with fewer, power is taken to change nothing
H100 = KNOWN["NVIDIA H100 80GB HBM3"]
MULTIPROCESSORS = H100.multiprocessors  # as many as an H200 has
SHIPPED = cast("AlgorithmModel", model_for(H100))
OFFER = Offer._fields[1:]  # what is said of an algorithm for one product


class Measured(NamedTuple):
    """A product with its algorithms, of which the first is the heuristic's."""

    source: str
    problem: Problem
    offers: list[Offer]
    us: np.ndarray[Any, Any]
    device: str = ""
    short_us: np.ndarray[Any, Any] = np.array([])  # in short turns, where `us` is in long ones

    @property
    def product(self) -> tuple[Any, ...]:
        """What two products have in common that are the same for the library's algorithms."""
        p = self.problem
        return p.B, p.M, p.N, p.K, p.dtype, p.allow_tf32, p.a.layout, p.b.layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", metavar="ROWS")
    parser.add_argument("--long", type=Path, metavar="ROWS", help="timed in long turns")
    parser.add_argument("--judge", type=Path, metavar="ROWS", help="they are not learned")
    parser.add_argument("--margin", type=float, default=1.03)
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = [row for path in args.rows for row in read_rows(path)]
    learned = measured(row for row in rows if row["source"] in LEARNED)
    judged = read_rows(args.judge) if args.judge else []
    is_learned = args.judge in args.rows
    others = measured(row for row in judged if not (is_learned and row["source"] in LEARNED))
    tiles = SHIPPED.tiles
    learned, others = in_half_precision(leave_out(learned, others)), in_half_precision(others)
    device = rows[0]["device"]
    long = in_long_turns(learned, read_rows(args.long)) if args.long else []
    of_fold = np.array([fold(each.problem) for each in learned])
    print(f"Cross-validation over {sum(m.device == device for m in learned)} products, {device}:")
    answers, of_long = [], []
    for number in range(FOLDS):
        rest = [m for m, f in zip(learned, of_fold, strict=True) if f != number]
        model = fitted(rest, tiles, device, [m for m in long if fold(m.problem) != number])
        left = [m for m, f in zip(learned, of_fold, strict=True) if f == number]
        answers += [(each, predicted(model, each)) for each in left if each.device == device]
        of_long += [(m, predicted(model, m)) for m in long if fold(m.problem) == number]
    report(answers)
    if long:
        print("\nIn long turns:")
        report(of_long)
    version = rows[0]["cublaslt"]
    model = fitted(learned, tiles, device, long, margin=args.margin, version=version)
    if others:
        print(f"\nOn {len(others)} held-out products:")
        report([(each, predicted(model, each)) for each in others])
    if args.write:
        args.write.write_bytes(model.to_bytes())


def measured(rows: Iterable[Row]) -> list[Measured]:
    """The products whose heuristic's first algorithm was timed, without the fused epilogues that
    older rows have. Algorithms with an error beyond the limit are left out."""
    each = []
    for row in rows:
        if row["error"] or row.get("epilogue"):
            continue
        kept = right_algorithms(row)
        if not kept or kept[0]["place"] or kept[0]["origin"] != "listed":
            continue
        offers = [
            Offer(
                config_of(one), one["workspace"], one["waves"],
                one["place"] if one["origin"] == "listed" else UNLISTED,
            )
            for one in kept
        ]  # fmt: skip
        us = np.array([one["us"] for one in kept])
        problem = Problem.from_dict(row["problem"])
        each.append(Measured(row["source"], problem, offers, us, row["device"]))
    return each


def in_long_turns(some: Sequence[Measured], rows: Iterable[Row]) -> list[Measured]:
    """Those of the products that rows of long turns have, with these rows' algorithms and times."""
    known, found = {each.problem: each for each in reversed(some)}, []
    for row in rows:
        each = known.get(Problem.from_dict(row["problem"]))
        if each and not row["error"]:
            us = {config_of(one): one["us"] for one in right_algorithms(row)}
            places = [i for i, offer in enumerate(each.offers) if offer.config in us]
            offers = [each.offers[i] for i in places]
            times = np.array([us[offer.config] for offer in offers])
            if places[:1] == [0]:
                found.append(each._replace(offers=offers, us=times, short_us=each.us[places]))
    return found


def in_half_precision(some: Iterable[Measured]) -> list[Measured]:
    """In float32 and TF32 the trees choose no better than the heuristic."""
    return [each for each in some if each.problem.dtype.itemsize == 2]


def leave_out(some: Iterable[Measured], others: Iterable[Measured]) -> list[Measured]:
    """Those whose product is none of the others'."""
    taken = {each.product for each in others}
    return [each for each in some if each.product not in taken]


def chooser(argument: str) -> Callable[[Row, Sequence[Row]], list[int] | None]:
    """The trees of a file, of what ships where there is none, as regret/score.py asks them; behind
    a comma "order" for their own order, also where a compile takes the heuristic's first."""
    place, _, how = argument.partition(",")
    model = AlgorithmModel.from_bytes(Path(place).read_bytes()) if place else SHIPPED

    def choose(problem: Row, candidates: Sequence[Row]) -> list[int] | None:
        p = Problem.from_dict(problem)
        if "place" not in candidates[0] or not model.knows(p):
            return None
        offers = [Offer(config_of(each), *(each[n] for n in OFFER)) for each in candidates]
        answer = predicted(model, Measured("", p, offers, np.array([])))
        order: list[int] = answer.argsort(kind="stable")[: np.isfinite(answer).sum()].tolist()
        steps = p.a.align, p.b.align, p.N
        aligned = not any(step * p.dtype.itemsize % 16 for step in steps)
        first = choose_place(answer, least_gain(p, H100, model.margin) if aligned else math.inf)
        return order if how else [first, *(i for i in order if i != first)]

    name = "Diode's trees, " + ("their own order" if how else "as a compile")
    choose.name = name  # type: ignore[attr-defined]
    return choose


def fold(problem: Problem) -> int:
    return int(hashlib.sha256(f"{problem.N} {problem.K}".encode()).hexdigest(), 16) % FOLDS


def fitted(
    some: Sequence[Measured], tiles: np.ndarray[Any, Any], device: str,
    long: Sequence[Measured] = (), *, margin: float = 1.0, version: int = 0,
) -> AlgorithmModel:  # fmt: skip
    """The trees for a device, from its products and those of others; times near the best count."""
    x = np.concatenate([describe(m.problem, m.offers, tiles, MULTIPROCESSORS) for m in some])
    y = np.concatenate([np.log(m.us / m.us[0]) for m in some]).clip(-1, 1)
    weight = [np.full(len(m.us), 1 if m.device == device else OTHERS) for m in some]
    data = xgboost.DMatrix(x, y, weight=np.concatenate(weight) * np.exp(-6 * y.clip(0)))
    options = {"max_depth": DEPTH, "eta": 0.1, "subsample": 0.6, "colsample_bytree": 0.5,
               "min_child_weight": 2, "base_score": 0.0}  # fmt: skip
    fits = (xgboost.train(options | {"seed": seed}, data, TREES) for seed in range(FITS))
    trees = [tree for fit in fits for tree in fit.get_dump(dump_format="json")]
    shares = np.repeat(np.float32([1 / FITS, LONG_SHARE]), [len(trees), LONG_TREES])
    if long:
        trees += trees_of_long_turns(some, long, tiles)
    inner = 2**DEPTH - 1
    split = np.zeros((len(trees), inner), np.int64)
    threshold = np.zeros((len(trees), inner), np.float32)
    leaf = np.zeros((len(trees), inner + 1), np.float32)
    for number, text in enumerate(trees):
        complete(json.loads(text), 0, split[number], threshold[number], leaf[number])
    leaf = np.round(leaf * shares[: len(leaf), None] * 2**16) / 2**16  # which compresses well
    sizes = np.array([[m.problem.M, m.problem.N, m.problem.K] for m in some])
    return AlgorithmModel(
        split, threshold, leaf.astype(np.float32), 0.0, fast_configs(some), tiles,
        tuple(map(float, sizes.min(0))), tuple(map(float, sizes.max(0))), margin, version,
    )  # fmt: skip


def trees_of_long_turns(
    some: Sequence[Measured], long: Sequence[Measured], tiles: np.ndarray[Any, Any]
) -> list[str]:
    """Trees of what long turns change: the log of an algorithm's time over the first's there, less
    that in short turns."""
    others = [m for m in some if m.problem.flops < LEAST_LIMITED * m.problem.moved_bytes[1]][::3]
    both = [*long, *others]
    x = np.concatenate([describe(m.problem, m.offers, tiles, MULTIPROCESSORS) for m in both])
    slowed = [np.log(m.us / m.short_us) for m in long]
    y = [each - each[0] for each in slowed] + [np.zeros(len(m.us)) for m in others]
    options = {"max_depth": LONG_DEPTH, "eta": 0.12, "subsample": 0.6, "colsample_bytree": 0.3,
               "min_child_weight": 5, "base_score": 0.0}  # fmt: skip
    data = xgboost.DMatrix(x, np.concatenate(y).clip(-0.4, 0.4))
    return list(xgboost.train(options, data, LONG_TREES).get_dump(dump_format="json"))


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
    """The algorithms that are not listed and together bring the most: one after the other, that by
    which the products gain most beside those before (a greedy cover)."""
    gains: dict[Config, list[tuple[int, float]]] = {}
    reached = np.zeros(len(some))  # the log speed of the best that is listed or taken
    for number, each in enumerate(some):
        speeds = np.log(each.us[0] / each.us)
        for offer, speed in zip(each.offers, speeds, strict=True):
            if offer.place == UNLISTED:
                gains.setdefault(offer.config, []).append((number, speed))
            else:
                reached[number] = max(reached[number], speed)
    heap = [(-math.inf, config) for config in sorted(gains)]  # minus a gain at most: it only falls
    taken: list[Config] = []
    while heap and len(taken) < CONFIGS:
        _, config = heapq.heappop(heap)
        numbers, speeds = map(np.array, zip(*gains[config], strict=True))
        gain = np.maximum(speeds - reached[numbers], 0).sum()
        if heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, config))
        else:
            taken.append(config)
            np.maximum.at(reached, numbers, speeds)
    return tuple(taken)


def predicted(model: AlgorithmModel, each: Measured) -> np.ndarray[Any, Any]:
    """Log times over the first's; infinite where an algorithm would not be offered."""
    answer = model.predict(describe(each.problem, each.offers, model.tiles, MULTIPROCESSORS))
    offered = [o.place != UNLISTED or o.config in model.configs for o in each.offers]
    return np.where(offered, answer, math.inf)


def kind(each: Measured) -> str:
    problem = each.problem
    even = min(problem.a.align, problem.b.align) >= 8 and problem.N % 8 == 0
    return f"{'aligned' if even else 'odd'} {'over' if each.us[0] > 20 else 'under'} 20 µs"


def geomean(numbers: Iterable[float]) -> float:
    several = list(numbers)
    return statistics.geometric_mean(several) if several else float("nan")


def report(answers: Sequence[tuple[Measured, np.ndarray[Any, Any]]]) -> None:
    """Prints the speed over the heuristic's first: by margin, and of the best."""
    for name in ("all", *sorted({kind(each) for each, _ in answers})):
        some = [(m, answer) for m, answer in answers if name in ("all", kind(m))]
        best = geomean(m.us[0] / m.us.min() for m, _ in some)
        print(f"{name:24s} {len(some):5d} products, best {best:.3f}")
        for margin in MARGINS:
            gains = [least_gain(m.problem, KNOWN.get(m.device, H100), margin) for m, _ in some]
            places = map(choose_place, (answer for _, answer in some), gains)
            speeds = [m.us[0] / m.us[place] for (m, _), place in zip(some, places, strict=True)]
            slower = sum(speed < 1 / SLOWER for speed in speeds)
            print(
                f"    margin {margin:.2f}: {geomean(speeds):.4f}, worst {min(speeds):.3f}, "
                f"{slower} slower by over 3 %, {sum(s != 1 for s in speeds)} of another algorithm"
            )


if __name__ == "__main__":
    main()

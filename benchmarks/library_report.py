"""What the rows of `library_algorithms.py` say, as tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from processes import Row

from diode_engine.core.problem import Problem
from diode_engine.models.library_algorithms import Config

# Of an algorithm in a row: its config's fields after the origin, and two halves of the precise
# rounds, of which `chosen_us` chooses and `us` is reported (null: not among the fastest).
COLUMNS = (
    "aligned", "origin", *Config._fields, "workspace", "waves", "error", "quick_us",
    "chosen_us", "us",
)  # fmt: skip
FIRST = 24
HARDWARE = {"H200": (790e12, 4.3e12), "H100": (798e12, 3.0e12)}  # measured FLOP/s and bytes/s


class Answer(NamedTuple):
    """Of one product: the microseconds of torch's call and of the best of several groups of
    algorithms, each never worse than what is before it but by noise."""

    row: Row
    problem: Problem
    torch: float
    us: dict[str, float]


def error_limit(error_of_torch: float) -> float:
    """The error that the result of an algorithm may have."""
    return 2 * error_of_torch + 1e-6


def right_algorithms(row: Row) -> list[Row]:
    """The algorithms of a row whose results are right, by COLUMNS, each with its place in the row;
    the first of a row are those that the heuristic lists, in its order."""
    every = [dict(zip(COLUMNS, each, strict=True)) for each in row["algorithms"]]
    limit = error_limit(row["error_of_torch"])
    return [each | {"place": i} for i, each in enumerate(every) if each["error"] <= limit]


def answer(row: Row) -> Answer:
    problem = Problem.from_dict(row["problem"])
    (chosen_by, plain), (_, again) = row["us"]["torch"], row["us"]["again"]
    right = right_algorithms(row)
    own = [each for each in right if not each["aligned"]]
    listed = [each for each in own if each["origin"] == "listed"]
    groups = {
        "first": [each for each in listed if each["place"] == 0],
        "24": [each for each in listed if each["place"] < FIRST],
        "listed": listed, "any": own,
    }  # fmt: skip
    us = {"again": again}
    for name, group in groups.items():
        best = best_of(group)
        us[name] = plain if best is None else best["us"]
        if name != "first" and (best is None or best["chosen_us"] > chosen_by):
            us[name] = plain
    us |= padded(row, right, us["any"])
    return Answer(row, problem, plain, us)


def best_of(algorithms: Iterable[Row]) -> Row | None:
    timed = [each for each in algorithms if each["us"] is not None]
    return min(timed, key=lambda each: each["chosen_us"], default=None)


def padded(row: Row, algorithms: Sequence[Row], as_it_is: float) -> dict[str, float]:
    """The best of the product as it is and with aligned strides, where all copies count, where b
    is a weight that was copied once, and where no copy counts."""
    copies = {
        name.removeprefix("copy "): us for name, (_, us) in row["us"].items() if "copy" in name
    }
    if not copies:
        return {}
    found = {"copies count": as_it_is, "b's is free": as_it_is, "copies are free": as_it_is}
    for aligned in {each["aligned"] for each in algorithms} - {""}:
        best = best_of(each for each in algorithms if each["aligned"] == aligned)
        for name, free in zip(found, ("", "b", "a+b+out"), strict=True):
            if best is not None:
                parts = set(aligned.split("+")) - set(free.split("+"))
                found[name] = min(found[name], best["us"] + sum(copies[each] for each in parts))
    return found


def kind(answer: Answer) -> str:
    problem, epilogue = answer.problem, answer.row["epilogue"]
    if problem.dtype == "float32":
        name = "TF32" if problem.allow_tf32 else "float32"
    else:
        even = min(problem.a.align, problem.b.align) >= 8 and problem.N % 8 == problem.K % 8 == 0
        name = "half aligned" if even else "half odd"
    bias = "" if problem.bias == "none" else f" {problem.bias} bias"
    size = "over" if answer.torch > 20 else "under"
    return f"epilogue {epilogue}" if epilogue else f"{name} {size} 20 µs{bias}"


def least_us(problem: Problem, gpu: str) -> float:
    """What a product in half precision takes on a GPU at best; others take longer."""
    flops, moved = HARDWARE[gpu]
    return max(problem.flops / flops, problem.moved_bytes[1] / moved) * 1e6


def roofline_us(answer: Answer) -> float | None:
    """The least microseconds of a product in half precision on this GPU."""
    known = [name for name in HARDWARE if name in answer.row["device"]]
    if not known or answer.problem.dtype == "float32":
        return None
    return least_us(answer.problem, known[0])


def geomean(numbers: Iterable[float]) -> float:
    several = list(numbers)
    return statistics.geometric_mean(several) if several else float("nan")


def line(row: Row) -> str:
    """One row as a line of text."""
    name = f"{row['source']:10s} {Problem.from_dict(row['problem'])!s:56s} {row['epilogue']:8s}"
    if row["error"]:
        return f"{name} failed: {row['error'].splitlines()[0][:120]}"
    said = answer(row)
    parts = [f"{group} {said.torch / us:.3f}" for group, us in said.us.items()]
    count = len(row["algorithms"])
    return f"{name} torch {said.torch:8.1f} µs  {'  '.join(parts)}  of {count}"


def show(rows: Sequence[Row]) -> None:
    """Prints the speeds over torch's call by kind and by source, what each attribute brings, the
    algorithms that were the fastest, the largest gains, and what failed."""
    answers = [answer(row) for row in rows if not row["error"]]
    for title, of in (("kind", kind), ("source", lambda each: str(each.row["source"]))):
        print(f"\n{title:32s} products  speed over torch's call: geomean (p10, p90, greatest)")
        for name, some in grouped(answers, of).items():
            print(f"{name:32s} {len(some):5d}  {shares(some)}")
            for group in dict.fromkeys(group for each in some for group in each.us):
                have = [each for each in some if group in each.us]
                speeds = sorted(each.torch / each.us[group] for each in have)
                tenth = len(speeds) // 10
                print(
                    f"    {group:28s} {len(have):5d}  {geomean(speeds):.3f}"
                    f"  ({speeds[tenth]:.3f}, {speeds[-1 - tenth]:.3f}, {speeds[-1]:.3f})"
                )
    print("\nSpeed of the best that has the attribute of the heuristic's first, over the best:")
    for name, some in grouped(answers, kind).items():
        parts = [f"{field} {attribute_worth(some, field):.3f}" for field in Config._fields]
        print(f"{name:32s} {'  '.join(parts)}")
    print("\nThe largest gains:")
    for each in sorted(answers, key=lambda each: each.us["any"] / each.torch)[:20]:
        print(f"  {line(each.row)}\n      {fastest(each)}")
    for row in rows:
        if row["error"]:
            print(f"  {line(row)}")


def grouped(answers: Iterable[Answer], of: Callable[[Answer], str]) -> dict[str, list[Answer]]:
    groups: dict[str, list[Answer]] = {}
    for each in sorted(answers, key=of):
        groups.setdefault(of(each), []).append(each)
    return groups


def shares(answers: Sequence[Answer]) -> str:
    """The shares of the roofline that torch's call and the best reach."""
    bounds = [(each, bound) for each in answers if (bound := roofline_us(each))]
    if not bounds:
        return ""
    of_torch = geomean(bound / each.torch for each, bound in bounds)
    best = geomean(bound / min(each.us.values()) for each, bound in bounds)
    return f"of the roofline: torch {of_torch:.3f}, the best {best:.3f}"


def attribute_worth(answers: Sequence[Answer], field: str) -> float:
    """By quick times: the best of those with the first algorithm's value, and the best of all."""
    ratios = []
    for each in answers:
        own = [row for row in right_algorithms(each.row) if not row["aligned"]]
        same = [row["quick_us"] for row in own if row[field] == own[0][field]]
        if same:
            ratios.append(min(row["quick_us"] for row in own) / min(same))
    return geomean(ratios)


def fastest(answer: Answer) -> str:
    best = best_of(each for each in right_algorithms(answer.row) if not each["aligned"])
    return json.dumps(best and {name: best[name] for name in COLUMNS[1:-2]})

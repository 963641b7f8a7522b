"""How well choosers choose among timed kernels: the benchmark, which needs numpy and not Diode.

    python benchmarks/regret/score.py FILE[:ARGUMENT] … [--set FILE] [--json FILE]

Each FILE is a chooser in Python: it has `choose(problem, candidates)`, or `chooser(argument)`,
which makes such a function. README.md says what these are given, what they answer, and what the
columns mean. The library's kernel, a short search and the best of all, which the set itself knows,
come first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import lzma
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SET = Path(__file__).parent / "h200-2026-11-22.jsonl.xz"
FIRST = 5  # of an order: the best of so many counts too
# Where a set's head says nothing else: times the library's time, beyond which a choice counts as
# slower, and what the library's kernel and the best of the candidates `default` are called.
SLOWER = 1.05
NAMES = {"library": "the library's kernel (ATen)", "default": "max-autotune DEFAULT"}
BEST = "the best of all"
RESAMPLES = 1000
SEED = 0
INTERVAL = (2.5, 97.5)  # percentiles
COLUMNS = ("regret", "efficiency", "p10", "worst", "first five", "slower", "speed")

Row = dict[str, Any]
# A candidate's place, an order of places (the best first), or None where it has no answer.
Choose = Callable[[Row, Sequence[Row]], int | Sequence[int] | None]


def read(path: Path) -> tuple[Row, list[Row]]:
    """The head of a set, and its problems."""
    with lzma.open(path, "rt") as file:
        head, *rows = map(json.loads, file)
    return head, rows


def loaded(given: str) -> tuple[str, Choose]:
    """The name and the function of a chooser, as FILE or FILE:ARGUMENT."""
    file, _, argument = given.partition(":")
    spec = importlib.util.spec_from_file_location(f"chooser_{Path(file).stem}", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        sys.exit(f"There is no chooser {file}: name a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(Path(file).parent))  # for what lies beside it
    spec.loader.exec_module(module)
    choose = module.chooser(argument) if hasattr(module, "chooser") else module.choose
    return getattr(choose, "name", Path(file).stem), choose


def answers(rows: Sequence[Row], candidates: Sequence[Row], choose: Choose) -> list[list[int]]:
    """For each problem the places that a chooser names, the first being its choice; none where it
    has no answer. Exits where one is out of range."""
    found = []
    for row in rows:
        answer = choose(row["problem"], offered(row, candidates))
        order = [] if answer is None else np.atleast_1d(np.asarray(answer, np.intp)).tolist()
        if any(not 0 <= i < len(row["us"]) for i in order):
            sys.exit(f"{row['id']}: a chooser named a candidate that is not there: {order[:5]}")
        found.append(order)
    return found


def offered(row: Row, candidates: Sequence[Row]) -> list[Row]:
    """A problem's candidates; where the row has an `offer`, with what that says of each."""
    own = [candidates[i] for i in row["candidates"]]
    for name, values in row.get("offer", {}).items():
        own = [each | {name: value} for each, value in zip(own, values, strict=True)]
    return own


def default_answers(rows: Sequence[Row]) -> list[list[int]]:
    """What a search of the candidates `default` takes by these times."""
    return [[min(row["default"], key=row["us"].__getitem__)] for row in rows]


def outcomes(
    rows: Sequence[Row], orders: Sequence[Sequence[int]], limit: float
) -> dict[str, np.ndarray]:
    """By problem: what a choice loses, its efficiency, that of the best of the first five, whether
    it takes over `limit` times as long as the library's kernel, and its speed over that. Without an
    answer the library's counts."""
    lost, first, five, slower, speed = [], [], [], [], []
    for row, order in zip(rows, orders, strict=True):
        us, library = row["us"], row["us"][row["library"]]
        best = min(us)
        taken = us[order[0]] if order else library
        lost.append(taken / best - 1)
        first.append(best / taken)
        five.append(best / min([us[i] for i in order[:FIRST]], default=library))
        slower.append(taken > limit * library)
        speed.append(library / taken)
    return {
        "lost": np.array(lost),
        "first": np.array(first),
        "five": np.array(five),
        "slower": np.array(slower, float),
        "speed": np.array(speed),
        "one": np.array([len(order) <= 1 for order in orders]),
    }


def figures(found: dict[str, np.ndarray], drawn: np.ndarray) -> dict[str, np.ndarray]:
    """Each column [resamples] of the problems `drawn` [resamples, n]."""
    first = found["first"][drawn]
    out = {
        "regret": found["lost"][drawn].mean(axis=1),
        "efficiency": np.exp(np.log(first).mean(axis=1)),
        "p10": np.percentile(first, 10, axis=1),
        "worst": first.min(axis=1),
        "slower": found["slower"][drawn].mean(axis=1),
        "speed": np.exp(np.log(found["speed"])[drawn].mean(axis=1)),
    }
    if not found["one"].all():
        out["first five"] = np.exp(np.log(found["five"])[drawn].mean(axis=1))
    return out


def summary(found: dict[str, np.ndarray], which: np.ndarray) -> dict[str, list[float]]:
    """By column the figure for the problems at `which`, and its bootstrap interval."""
    rng = np.random.default_rng(SEED)
    own = figures(found, which[None])
    resampled = figures(found, rng.choice(which, (RESAMPLES, len(which))))
    return {
        name: [float(value[0]), *np.percentile(resampled[name], INTERVAL).tolist()]
        for name, value in own.items()
    }


def groups(row: Row) -> Iterator[tuple[str, str]]:
    """What a problem is counted under: (kind, group)."""
    p = row["problem"]
    stride = min(p["a_align"], p["b_align"])
    yield "all", "all"
    yield from (("split", name) for name in row["splits"])
    yield "op", p["op"]
    yield "type", "tf32" if p["allow_tf32"] else p["dtype"]
    yield "strides", "odd" if stride == 1 else f"divisible by {stride}"
    yield "M", "up to 16" if p["M"] <= 16 else "over 16"
    yield "candidates", "100 or more" if len(row["us"]) >= 100 else "fewer"


def natural(group: str) -> tuple[str, int, str]:
    """What groups are sorted by: numbers by their size."""
    words, _, last = group.rpartition(" ")
    return (words, int(last), "") if last.isdigit() else (group, 0, "")


def text(name: str, value: Sequence[float] | None) -> str:
    if value is None:
        return ""
    if name in ("regret", "slower"):
        figure, low, high = (100 * v for v in value)
        return f"{figure:.1f} % ({low:.1f}–{high:.1f})"
    figure, low, high = value
    return f"{figure:.3f} ({low:.3f}–{high:.3f})"


def table(title: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    print("| " + " | ".join(title) + " |\n|" + "---|" * len(title))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("choosers", nargs="*", metavar="FILE[:ARGUMENT]")
    parser.add_argument("--set", type=Path, default=SET)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    head, rows = read(options.set)
    names = NAMES | head.get("names", {})
    everyone = {
        names["library"]: [[row["library"]] for row in rows],
        names["default"]: default_answers(rows),
        BEST: [[int(np.argmin(row["us"]))] for row in rows],
    }
    for given in options.choosers:
        name, choose = loaded(given)
        began = time.perf_counter()
        everyone[name] = answers(rows, head["candidates"], choose)
        seconds = time.perf_counter() - began
        without = sum(not order for order in everyone[name])
        print(f"{name}: {seconds:.0f} s, no answer on {without} problems", file=sys.stderr)
    limit = head.get("slower", SLOWER)
    found = {name: outcomes(rows, orders, limit) for name, orders in everyone.items()}
    places: dict[str, dict[str, list[int]]] = {}
    for i, row in enumerate(rows):
        for kind, group in groups(row):
            places.setdefault(kind, {}).setdefault(group, []).append(i)
    report = {
        kind: {
            group: {
                "problems": len(which),
                "choosers": {name: summary(f, np.array(which)) for name, f in found.items()},
            }
            for group, which in sorted(by.items(), key=lambda item: natural(item[0]))
        }
        for kind, by in places.items()
    }
    for group, part in (report["all"] | report.get("split", {})).items():
        print(f"{group}: {part['problems']} problems\n")
        table(
            ("chooser", *COLUMNS),
            [[n, *(text(c, f.get(c)) for c in COLUMNS)] for n, f in part["choosers"].items()],
        )
    print("efficiency by kind\n")
    shown = [name for name in everyone if name != BEST]
    table(
        ("", "problems", *shown),
        [
            [f"{kind}: {group}", str(part["problems"]),
             *(text("efficiency", part["choosers"][name]["efficiency"]) for name in shown)]
            for kind, by in report.items() if kind not in ("all", "split")
            for group, part in by.items()
        ],
    )  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

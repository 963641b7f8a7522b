"""Lowers architectures that the zoo does not have, for an H200 that need not be there.

    python benchmarks/lower_architectures.py [--names REGEX]                 list them
    python benchmarks/lower_architectures.py --json FILE [--names REGEX] [--limit S] [--seconds S]
    python benchmarks/lower_architectures.py --report FILE

They are all model types of the installed transformers, a model of each module of timm and of each
family of torchvision whose layers are more than convolutions: with default sizes, few layers, and
an odd size here and there. Type, training, dynamic sizes and Diode's ways take turns. A program
with Diode is compared with plain Inductor's. See docs/notes/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import without_cuda
import zoo_lowering
from architectures import Architecture, known
from zoo import wrong
from zoo_models import ZOO, Model
from zoo_ways import DIODE

from diode_engine.core.hardware import H200
from diode_engine.inductor import without_gpu

_TYPES: tuple[dict[str, Any], ...] = (
    {"dtype": torch.bfloat16},
    {"dtype": torch.float16},
    {"dtype": torch.float32},
    {"dtype": torch.bfloat16},
    {"dtype": torch.float32, "tf32": True},
)
_GEMMS = ("mm", "addmm", "bmm", "baddbmm", "bias_addmm", "_int_mm", "_scaled_mm", "_grouped_mm")
_MEMORY = 14 << 30  # bytes that a model may take of this machine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],  # type: ignore[union-attr]
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--names", default="", metavar="REGEX", help="only those of such names")
    parser.add_argument(
        "--limit", type=int, default=60, metavar="SECONDS", help="of the processor's time for one"
    )
    parser.add_argument("--seconds", type=float, default=1e6, help="time limit to begin one")
    parser.add_argument("--report", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.report:
        report([json.loads(line) for line in args.report.read_text().splitlines()])
        return
    chosen = [(turn, each) for turn, each in enumerate(known()) if re.search(args.names, each.name)]
    if args.json is None:
        for _, each in chosen:
            print(each.name)
        return
    until = time.monotonic() + args.seconds
    done = set()
    if args.json.exists():
        done = {json.loads(line)["model"] for line in args.json.read_text().splitlines()}
    without_gpu.pretend(H200)
    without_cuda.replace_methods()
    for name in ("odd-mlp-training", "plain-attention-float16"):  # loads what all processes need
        zoo_lowering.lower(ZOO[name], ("plain", *DIODE[:4]), lambda _: None)
    for turn, each in chosen:
        if each.name not in done and time.monotonic() < until:
            _in_a_process(_model(each, turn), _ways(turn), args.json, args.limit)


def _ways(turn: int) -> tuple[str, ...]:
    return "plain", ("fast", "install", "threshold")[turn // 2 % 3] if turn % 2 else "import"


def _model(each: Architecture, turn: int) -> Model:
    return Model(
        each.name, each.source, each.source, partial(each.build, turn), dynamic=turn % 8 in (2, 5),
        train=turn % 12 == 7, **_TYPES[turn % len(_TYPES)],
    )  # fmt: skip


def _in_a_process(model: Model, ways: tuple[str, ...], file: Path, limit_s: int) -> None:
    """Lowers a model in a process of its own, so that a crash or a hang loses no other."""
    child = os.fork()
    if not child:
        signal.alarm(5 * limit_s)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        try:
            _lower(model, ways, file)
        except BaseException as error:  # noqa: BLE001  # it must not return into the parent's loop
            _write(file, model, {"way": "", "error": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        ended = os.waitstatus_to_exitcode(status)
        _write(file, model, {"way": "", "error": f"The process ended with {ended}."})
    print(model.name, model.kind, flush=True)


def _lower(model: Model, ways: tuple[str, ...], file: Path) -> None:
    def add(row: dict[str, Any]) -> None:
        failed = row["way"] == "plain" and row["error"]
        if failed and "BF16" in failed and model.dtype is not torch.bfloat16:  # the CPU's experts
            _lower(replace(model, dtype=torch.bfloat16, tf32=False), ways, file)
            os._exit(0)
        _write(file, model, row)
        if failed:  # there is nothing to compare with
            os._exit(0)

    zoo_lowering.lower(model, ways, add)


def _write(file: Path, model: Model, row: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps({**row, "model": model.name, "kind": model.kind}) + "\n")


def report(rows: list[dict[str, Any]]) -> None:
    """Prints what was lowered, what was left out and why, and what differs from stock."""
    by_model: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["way"]] = row
    whole = {name: ways for name, ways in by_model.items() if _skipped(ways) is None}
    print(f"{len(by_model)} architectures, {len(whole)} lowered:")
    print("  ", dict(Counter(row["way"] for ways in whole.values() for row in ways.values())))
    print("   kinds:", dict(Counter(next(iter(ways.values()))["kind"] for ways in whole.values())))
    print("   skipped:", dict(Counter(filter(None, map(_skipped, by_model.values())))))
    for name, ways in whole.items():
        for sentence in differences(ways):
            print(f"{name} ({ways['plain']['kind']}), {sentence}")


def _skipped(ways: dict[str, dict[str, Any]]) -> str | None:
    """Why an architecture was not lowered; None where it was, in one way of Diode's or more."""
    plain = ways.get("plain")
    if plain is not None and not plain["error"]:
        return None if {"import", "fast", "install", "threshold"} & {*ways} else "too slow"
    error = plain["error"] if plain else ways[""]["error"]
    if "NotBuilt" in error:
        return "not built: " + ("no such inputs" if "inputs" in error else "its own error")
    if plain is None:
        return "too slow, or out of memory"
    return "plain Inductor fails" if plain["graphs"] else "cannot be traced without data"


def differences(ways: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What stands in the rows of a model that does not in stock's."""
    for way, row in ways.items():
        if way == "plain":
            continue
        if not way:
            yield f"the process: {row['error']}"
            continue
        for sentence in wrong(row):
            yield f"{way}: {sentence}"
        if row["error"]:
            continue
        for name, count in row["stats"].items():
            if count and name.startswith(("fallback_", "passed_")):
                yield f"{way}: {name} {count}: {row['warnings']}"
        theirs, ours = Counter(ways["plain"]["kernels"]), Counter(row["kernels"])
        gemms = sum(theirs[name] for name in _GEMMS)
        left = gemms - row["products"] - row["stats"]["fallbacks"]
        if left > 0:  # max-autotune has more, where a convolution is a product
            yield f"{way}: {left} of {gemms} products not asked for"
        if ours["convolution"] < theirs["convolution"]:  # max-autotune computes them as products
            continue
        if row["stats"].get("padding_decided"):  # the copies to padded operands are kernels too
            continue
        for kind in sorted({*ours, *theirs} - {*_GEMMS, "tem"}):
            if kind == "bytes" and theirs["_grouped_mm"]:  # which allocates its result itself
                continue
            if ours[kind] > theirs[kind] * (1.02 if kind == "bytes" else 1):
                yield f"{way}: {ours[kind]} {kind}, stock has {theirs[kind]}"


if __name__ == "__main__":
    main()
    sys.stdout.flush()

"""Write the tables of measured figures into README.md and pages of docs/, from measured rows.

python docs/write_figures.py

The rows are benchmarks/results/zoo-*.jsonl.zst and fresh-programs-*.jsonl.zst (programs),
clients-*.jsonl.zst (programs of libraries), batch-invariance-*.jsonl.zst, and the manifests of the
default models in trained_models/ (held-out products). A page has a table between
`<!-- figures: NAME -->` and `<!-- end -->`; no other page repeats its figures.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MODELS = ROOT / "trained_models"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "results.md",
    *(ROOT / "docs" / "notes" / name for name in ("batch-invariance.md", "programs.md")),
)

Row = dict[str, Any]


class MeasuredSet(NamedTuple):
    """A file of measured programs: which model chose, and the commit that ran. Where several
    programs were compiled at a time (`crowded`), its compile times do not count."""

    file: str
    model: str
    commit: str
    date: str
    crowded: bool = False


# In the order in which they were measured: the last row of a program and a way counts.
SETS = (
    MeasuredSet("zoo-h200-2026-11-22.jsonl.zst", "gemm@6", "ce5b5cfd", "2026-11-22"),
    MeasuredSet("zoo-h200-2026-11-23.jsonl.zst", "gemm@8", "169d4dc5", "2026-11-23"),
    MeasuredSet("zoo-h200-2026-11-23.second.jsonl.zst", "gemm@9", "7d6613ad", "2026-11-23"),
    MeasuredSet("zoo-h200-2026-11-23.third.jsonl.zst", "gemm@10", "bac7a705", "2026-11-23"),
    MeasuredSet("zoo-h200-2026-11-24.jsonl.zst", "gemm@11", "851fa045", "2026-11-24"),
    MeasuredSet("zoo-h200-2026-11-24.second.jsonl.zst", "gemm@12", "5519ad90", "2026-11-24", True),
    MeasuredSet("zoo-h200-2026-11-28.jsonl.zst", "gemm@16", "cb63f218", "2026-11-28", True),
    MeasuredSet("zoo-h200-2026-11-29.jsonl.zst", "gemm@17", "a27bbf71", "2026-11-29", True),
    MeasuredSet("zoo-h200-2026-11-29.second.jsonl.zst", "gemm@17", "5f347567", "2026-11-29", True),
    MeasuredSet("zoo-h200-2026-11-29.third.jsonl.zst", "gemm@17", "69b2ebed", "2026-11-29", True),
    MeasuredSet("zoo-h200-2026-11-29.fourth.jsonl.zst", "gemm@17", "fed6a7af", "2026-11-29", True),
    MeasuredSet("zoo-h200-2026-11-29.fifth.jsonl.zst", "gemm@17", "95f4f989", "2026-11-29"),
    MeasuredSet("zoo-h200-2026-11-30.alone.jsonl.zst", "gemm@17", "5b6be333", "2026-11-30"),
    MeasuredSet("zoo-h200-2026-11-30.jsonl.zst", "gemm@17", "5b6be333", "2026-11-30", True),
    MeasuredSet("zoo-h200-2026-11-30.second.jsonl.zst", "gemm@17", "21bfd252", "2026-11-30", True),
    MeasuredSet("zoo-h200-2026-11-30.third.jsonl.zst", "gemm@17", "d44145fe", "2026-11-30", True),
    MeasuredSet("zoo-h200-2026-11-30.fourth.jsonl.zst", "gemm@17", "d44145fe", "2026-11-30", True),
)
# Of families that the zoo does not have, chosen by name before any was measured.
FRESH = (
    MeasuredSet(
        "fresh-programs-h200-2026-11-29.jsonl.zst", "gemm@17", "18f2ae6d", "2026-11-29", True
    ),
    MeasuredSet(
        "fresh-programs-h200-2026-11-29.second.jsonl.zst",
        "gemm@17",
        "5f347567",
        "2026-11-29",
        True,
    ),
)
H100 = (
    MeasuredSet("zoo-h100-2026-11-24.jsonl.zst", "gemm@12", "5519ad90", "2026-11-24", True),
    MeasuredSet("zoo-h100-2026-11-26.jsonl.zst", "gemm@12", "8c9d11be", "2026-11-26", True),
    MeasuredSet("zoo-h100-2026-11-26.second.jsonl.zst", "gemm@12", "4d55718f", "2026-11-26", True),
    MeasuredSet("zoo-h100-2026-11-26.third.jsonl.zst", "gemm@12", "64b92911", "2026-11-26", True),
    MeasuredSet("zoo-h100-2026-11-26.fourth.jsonl.zst", "gemm@13", "abc19b13", "2026-11-26", True),
    MeasuredSet("zoo-h100-2026-11-27.jsonl.zst", "gemm@14", "74aab8c8", "2026-11-27", True),
)
# Ways of the zoo: Diode, max-autotune's own search, and plain torch.compile once more.
DIODE, SEARCH, AGAIN = "import", "DEFAULT", "again"


def read_programs(sets: Iterable[MeasuredSet] = SETS) -> dict[str, dict[str, Row]]:
    """Return the last row of each way and program, with its `set`: rows[way][program]. Its `ratio`
    is the step in units of plain's, `worst` that of the worst case."""
    rows: dict[str, dict[str, Row]] = {}
    for measured in sets:
        with zstandard.open(RESULTS / measured.file, "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                if not row.get("error") and row.get("ratio"):
                    of_way = rows.setdefault(row["way"], {})
                    if measured.crowded:
                        row["compile_ratio"] = of_way.get(row["model"], {}).get("compile_ratio")
                    of_way[row["model"]] = {**row, "worst": row["ratio"], "set": measured}
    for name, again in rows.get(AGAIN, {}).items():
        row = rows.get(DIODE, {}).get(name)
        slower = None if row is None else row.get("slower_plain_ratio")
        if row is not None and slower is not None:  # measured beside two plain compiles
            row["ratio"] /= math.sqrt(again["ratio"])
            row["worst"] = min(slower, row.get("second_ratio", slower))
    return rows


def programs() -> str:
    """The speed and compile time of programs by kind, in units of plain torch.compile."""
    rows = read_programs()
    diode, search = rows[DIODE], rows[SEARCH]
    kinds: dict[str, list[Row]] = {}
    for row in diode.values():
        kinds.setdefault(row["group"], []).append(row)
    names = {"mlp": "multilayer perceptrons", "8 bits": "layers in 8 bits"}
    lines = [
        "| programs | number | speed | slowest | fastest | compile time |",
        "|---|---|---|---|---|---|",
        *(
            _programs_line(names.get(kind, kind), kinds[kind])
            for kind in sorted(kinds, key=_speed_of(kinds))
        ),
        _programs_line("**all**", diode.values()),
        _programs_line("**all**, on an H100", read_programs(H100)[DIODE].values()),
        _programs_line(
            "models of other families, chosen by name", read_programs(FRESH)[DIODE].values()
        ),
    ]
    both = [name for name in search if name in diode]
    lines += [
        _programs_line(f"{len(both)} of them, by Diode", [diode[name] for name in both]),
        _programs_line("the same, by max-autotune's search", [search[name] for name in both]),
    ]
    return "\n".join(lines)


def _speed_of(kinds: Mapping[str, list[Row]]) -> Callable[[str], float]:
    """Return the order of the table: the kind that gains the most comes first."""
    return lambda kind: _geomean(row["ratio"] for row in kinds[kind])


def _programs_line(name: str, rows: Iterable[Row]) -> str:
    rows = list(rows)
    ratios = [row["ratio"] for row in rows]
    worst = max(row["worst"] for row in rows)
    compiles = [row["compile_ratio"] for row in rows if row["compile_ratio"]]
    compiled = f"{_geomean(compiles):.2f} ×" if compiles else "–"
    return (
        f"| {name} | {len(rows)} | {1 / _geomean(ratios):.2f} × | {1 / worst:.2f} × "
        f"| {1 / min(ratios):.2f} × | {compiled} |"
    )


def products() -> str:
    """How well the default model of each GPU chooses on the products held out from training."""
    choosers = ("ATen", "max-autotune DEFAULT", "nvMatmulHeuristics", "roofline")
    lines = [
        "| GPU | products | Diode | 10th percentile | ATen | max-autotune DEFAULT "
        "| nvMatmulHeuristics | roofline |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for gpu in _default_model()["gpus"]:
        metrics = gpu["metrics"]
        others = " | ".join(f"{metrics['efficiency_of_others'][name]:.3f}" for name in choosers)
        lines.append(
            f"| {gpu['hardware']['name']} | {metrics['problems']:,} | {metrics['efficiency']:.3f} "
            f"| {metrics['efficiency_p10']:.3f} | {others} |"
        )
    return "\n".join(lines)


def clients() -> str:
    """What programs of libraries cost: cold start, step and peak memory by plain torch.compile (the
    first and the second compile), Diode, and max-autotune's search. Empty without rows."""
    rows: dict[tuple[str, str], dict[str, Row]] = {}
    for path in sorted(RESULTS.glob("clients-*.jsonl.zst")):
        gpu = path.name.split("-")[1].upper()
        with zstandard.open(path, "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                rows.setdefault((gpu, row["program"]), {})[row["way"]] = row
    if not rows:
        return ""
    lines = [
        "Each library compiled its program in a separate process with empty caches; random",
        "weights, one or two layers of the model's widths (`benchmarks/clients.py`). Plain",
        "torch.compile twice, Diode by `DIODE_AUTOLOAD=1`, and max-autotune's search of products:",
        "",
        "| program | GPU | cold start, s: plain | Diode | search | step, ms: plain | Diode "
        "| search | peak, GiB: plain | Diode | search |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (gpu, program), ways in rows.items():
        _bound_cold_start(ways)
        cells = [
            _both(ways, cell) if way == "plain" else cell(ways.get(way, {}))
            for cell in (_cold_start, _step, _peak_memory)
            for way in ("plain", "diode", "search")
        ]
        lines.append(f"| {program} | {gpu} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _both(ways: Mapping[str, Row], cell: Callable[[Row], str]) -> str:
    """Return the figures of both plain compiles; one where they are the same."""
    return ", ".join(dict.fromkeys(cell(ways[way]) for way in ("plain", "again") if way in ways))


def _bound_cold_start(ways: Mapping[str, Row]) -> None:
    """Where the search's process was ended at a time limit, its cold start took over that limit,
    less the seconds that Diode's process took before its own: imports, and making the model."""
    ended = re.search(r"over (\d+) s", ways.get("search", {}).get("error", ""))
    if ended and "process_s" in ways.get("diode", {}):
        before = ways["diode"]["process_s"] - ways["diode"]["cold_s"]
        ways["search"]["over_s"] = float(ended[1]) - before


def _cold_start(row: Row) -> str:
    if "over_s" in row:
        return f"over {row['over_s']:.0f}"
    return f"{row['cold_s']:.1f}" if "cold_s" in row else "–"


def _step(row: Row) -> str:
    return f"{row['step_us'] / 1e3:.3g}" if "step_us" in row else "–"


def _peak_memory(row: Row) -> str:
    peaks = [row[name] for name in ("first_bytes", "step_bytes") if name in row]
    return f"{max(peaks) / 2**30:.1f}" if peaks else "–"


def invariant_speeds() -> str:
    """The speed of layers whose rows do not depend on the batch. Empty without rows."""
    return _invariance("speeds")


def invariant_serving() -> str:
    """What a decoder served in batches of several sizes computes, and how fast. Empty without
    rows."""
    return _invariance("serving")


def invariant_rows() -> str:
    """What gave the same rows in all batches: kernels, layers, a block. Empty without rows."""
    return _invariance("orders", "pairs", "parts")


def _invariance(*tables: str) -> str:
    """Return tables of benchmarks/batch_invariance.py, for each GPU with rows."""
    if str(ROOT / "benchmarks") not in sys.path:
        sys.path.append(str(ROOT / "benchmarks"))
    import batch_invariance

    texts = []
    for path in sorted(RESULTS.glob("batch-invariance-*.jsonl.zst")):
        with zstandard.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        some = next(row for row in rows if "gpu" in row)
        texts.append(f"{some['gpu']}, torch {some['torch']}, Triton {some['triton']}:")
        texts += [text for table in tables if (text := getattr(batch_invariance, table)(rows))]
    return "\n\n".join(texts)


def sources() -> str:
    """Which model and commit each measured set is of; its date is in its name."""
    last = [row for sets in (SETS, H100, FRESH) for row in read_programs(sets)[DIODE].values()]
    manifest = _default_model()
    lines = ["| set | rows | model | commit |", "|---|---|---|---|"]
    for measured in (*FRESH, *reversed(H100), *reversed(SETS)):
        count = sum(row["set"] == measured for row in last)
        if count:
            lines.append(
                f"| `benchmarks/results/{measured.file}` | {count} | {measured.model} "
                f"| {measured.commit} |"
            )
    held_out = sum(gpu["metrics"]["problems"] for gpu in manifest["gpus"])
    lines.append(
        f"| held-out part of `datasets/` | {held_out:,} products | {_default_name()} | manifest |"
    )
    return "\n".join(lines)


def _default_name() -> str:
    aliases = json.loads((MODELS / "nvidia-h200" / "aliases.json").read_text(encoding="utf-8"))
    return str(aliases["default"])


def _default_model() -> dict[str, Any]:
    name, version = _default_name().split("@")
    manifest = MODELS / "nvidia-h200" / name / version / "manifest.json"
    return dict(json.loads(manifest.read_text(encoding="utf-8")))


def _geomean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


TABLES = {
    "programs": programs, "products": products, "sources": sources, "clients": clients,
    "invariant speeds": invariant_speeds, "invariant serving": invariant_serving,
    "invariant rows": invariant_rows,
}  # fmt: skip


def with_tables(page: str) -> str:
    """Return the page with its tables as the rows have them now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- figures: {name} -->\n", "<!-- end -->"
        if begin in page:
            head, _, rest = page.partition(begin)
            text = f"{lines}\n" if (lines := table()) else ""
            page = f"{head}{begin}{text}{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")

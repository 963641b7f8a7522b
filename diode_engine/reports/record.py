"""The record of a program's report, and its file: JSON in the folder `reports` of Diode's home.

docs/formats.md describes the fields. A report that a stranger made is checked before it is used.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from diode_engine.atomic import FileKind, write_whole
from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import check_not_negative, decode_fields, encode, encode_fields
from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, Malformed, check_format, read_document, shortened
from diode_engine.errors import RecordError, ReportError, explain_os_error
from diode_engine.paths import data_dir

FORMAT, VERSION = "diode-report", 1
# A program of a thousand products has a report of half a mebibyte.
LIMITS = Limits(bytes=64 << 20)
# What a search takes for each candidate, compiles included: max-autotune timed 21 candidates of a
# product in 5.1 s on an H200 with 16 cores (docs/notes/direct-launching.md#how-fast).
SEARCH_SECONDS = 5.1 / 21


class Outcome(StrEnum):
    """What became of a product."""

    CHOSEN = "chosen"  # the compile took what Diode has chosen
    PREDICTED = "predicted"  # the compile did not ask Diode; this is what Diode would choose
    LEFT = "left"  # Diode makes no choice


@dataclass(frozen=True)
class Place:
    """Where a product is in the program: the path of the module in the model, the module's class,
    and the line of code that calls the product. What is not known is "", and the line 0. `count` is
    how many of the graph's products of this problem are there."""

    module: str
    kind: str
    file: str
    line: int
    code: str
    count: int = 1

    def __post_init__(self) -> None:
        check_not_negative(self)


@dataclass(frozen=True)
class Graph:
    """A graph that the program has compiled: its `phase` (forward, backward or inference), the
    `mode` in which its products were lowered (default, max-autotune or fast_autotune), and which of
    the program's processes compiled it. `runs` is how often it ran, None where that is not
    known."""

    phase: str
    mode: str
    process: int
    runs: int | None = None

    def __post_init__(self) -> None:
        check_not_negative(self)


@dataclass(frozen=True)
class Product:
    """A product of a graph, with all its places.

    `graph` is the graph's index in the report; `name` describes the product, and `problem` is None
    where Diode has no such problem. `dynamic` says whether a size is dynamic (then the problem has
    its hint). `kernel` is the chosen kernel, None where there is no choice, and `why` the reason
    for either. `predicted_us` and `library_us` are the predicted times of one product with the
    chosen kernel and with the library's, in microseconds; `confidence` is the probability that the
    kernel is within 5 % of the best. None is unknown. `timed` is how many kernels Inductor times
    for it, and `candidates` how many max-autotune's search would.
    """

    graph: int
    name: str
    problem: Problem | None
    dynamic: bool
    count: int
    places: tuple[Place, ...]
    outcome: Outcome
    kernel: Candidate | None = None
    why: str = ""
    predicted_us: float | None = None
    library_us: float | None = None
    confidence: float | None = None
    timed: int = 0
    candidates: int = 0

    def __post_init__(self) -> None:
        check_not_negative(self)

    @property
    def saved_us(self) -> float:
        """The predicted time that the kernel saves beside the library's, for all `count` products
        in one run of the graph, in microseconds; 0 where it is unknown."""
        if self.predicted_us is None or self.library_us is None:
            return 0.0
        return self.count * (self.library_us - self.predicted_us)


@dataclass(frozen=True)
class Report:
    """The report of a program.

    `program` is its command; `exit_code` is None for a part of a program. `hardware` is the GPU
    that the kernels are for, `model` the model that predicts, `fingerprint` that of model, rules
    and options. `active` says whether Diode chose in the program, and `reason` why not.
    `processes` is how many of the program's processes compiled, and `cached_graphs` how many graphs
    came from Inductor's caches, so that their products are not here. `notes` are sentences for the
    reader.
    """

    created: str  # ISO 8601, UTC
    program: str
    exit_code: int | None
    diode: str
    torch: str
    triton: str
    hardware: str
    model: str
    fingerprint: str
    active: bool
    reason: str
    processes: int
    cached_graphs: int
    notes: tuple[str, ...]
    graphs: tuple[Graph, ...]
    products: tuple[Product, ...]

    @cached_property
    def predicted_us(self) -> float:
        """The predicted time of all products whose time is known, each graph run once, with the
        chosen kernels, in microseconds."""
        return sum(p.count * p.predicted_us for p in self.products if p.predicted_us is not None)

    @cached_property
    def saved_us(self) -> float:
        """The predicted time that the chosen kernels save beside the library's, each graph run
        once, in microseconds."""
        return sum(p.saved_us for p in self.products)

    @cached_property
    def saved_in_runs_us(self) -> float | None:
        """The predicted time that the chosen kernels save beside the library's in all runs of the
        graphs that the program has made, in microseconds; None where no graph's runs are known."""
        if all(graph.runs is None for graph in self.graphs):
            return None
        return sum(p.saved_us * (self.graphs[p.graph].runs or 0) for p in self.products)

    @cached_property
    def search_candidates(self) -> int:
        """How many candidates max-autotune's search would time: each problem once."""
        return sum({p.problem or p.name: p.candidates for p in self.products}.values())

    @property
    def search_seconds(self) -> float:
        """About how long that search would take, in seconds (see SEARCH_SECONDS)."""
        return self.search_candidates * SEARCH_SECONDS

    def to_dict(self) -> dict[str, Any]:
        """Return the report as it is in its file. The field `totals` is for other readers:
        `from_dict` computes it again."""
        products = [{**encode(p), "saved_us": p.saved_us} for p in self.products]
        names = (
            "predicted_us", "saved_us", "saved_in_runs_us", "search_candidates", "search_seconds",
        )  # fmt: skip
        return {
            "format": FORMAT,
            "version": VERSION,
            **encode_fields(replace(self, products=())),
            "products": products,
            "totals": {name: getattr(self, name) for name in names},
        }

    @classmethod
    def from_dict(cls, document: Any) -> Report:
        """Return the report. Raises ReportError where it is no report, was written by a newer
        Diode, or has a field that cannot be."""
        try:
            check_format(document, FORMAT, VERSION)
            report: Report = decode_fields(cls, document)
            for product in report.products:
                if product.graph >= len(report.graphs):
                    raise Malformed(
                        f"A product is of graph {product.graph}, and there are "
                        f"{len(report.graphs)}."
                    )
            return report
        except (Malformed, RecordError) as error:
            why = shortened(str(error).rstrip("."))
            raise ReportError(f"This is no program's report: {why}.") from None


def folder() -> Path:
    """Return the folder of the user's reports. It need not exist."""
    return data_dir() / "reports"


def list_reports() -> list[Path]:
    """Return the files of the user's reports, the newest first."""
    return sorted(folder().glob("*.json"), reverse=True)


def read(path: Path) -> Report:
    """Return the report in a file. Raises ReportError."""
    document = read_document(path, LIMITS, ReportError)
    try:
        return Report.from_dict(document)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None


def write(report: Report, path: Path | None = None) -> Path:
    """Write the report and return its file: `path`, else a new one in the user's folder. Raises
    ReportError."""
    if path is None:
        time = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
        path = folder() / f"{time}-{os.getpid()}.json"
    text = json.dumps(report.to_dict(), allow_nan=False, indent=1)
    with explain_os_error(ReportError, f"{path} cannot be written"):
        if path.parent == folder():
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text + "\n", kind=FileKind.REPORT, durable=False)
    return path

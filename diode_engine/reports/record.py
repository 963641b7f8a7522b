"""The record of a program's report, and its file: JSON in the folder `reports` of Diode's home.

docs/formats.md describes the fields. A report that a stranger made is checked before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from diode_engine.atomic import FileKind, write_whole
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, Malformed, read_json, shortened
from diode_engine.errors import RecordError, ReportError
from diode_engine.paths import data_dir

FORMAT, VERSION = "diode-report", 1
# A program of a thousand products has a report of half a mebibyte.
LIMITS = Limits(bytes=64 << 20)
# What a search takes for each candidate, compiles included: max-autotune timed 21 candidates of a
# product in 5.1 s on an H200 with 16 cores (docs/notes/direct-launching.md#how-fast).
SEARCH_SECONDS = 5.1 / 21

T = TypeVar("T")


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
    kernel: Candidate | None
    why: str
    predicted_us: float | None
    library_us: float | None
    confidence: float | None
    timed: int
    candidates: int

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
        products = [
            {
                **{f.name: getattr(p, f.name) for f in fields(p)},
                "problem": p.problem and p.problem.to_dict(),
                "places": [asdict(place) for place in p.places],
                "outcome": str(p.outcome),
                "kernel": p.kernel and p.kernel.to_dict(),
                "saved_us": p.saved_us,
            }
            for p in self.products
        ]
        names = (
            "predicted_us", "saved_us", "saved_in_runs_us", "search_candidates", "search_seconds",
        )  # fmt: skip
        return {
            "format": FORMAT,
            "version": VERSION,
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "notes": list(self.notes),
            "graphs": [asdict(graph) for graph in self.graphs],
            "products": products,
            "totals": {name: getattr(self, name) for name in names},
        }

    @classmethod
    def from_dict(cls, document: Any) -> Report:
        """Return the report. Raises ReportError where it is no report, was written by a newer
        Diode, or has a field that cannot be."""
        try:
            return _report(document)
        except Malformed as error:
            raise ReportError(f"This is no program's report: {error}") from None


def folder() -> Path:
    """Return the folder of the user's reports. It need not exist."""
    return data_dir() / "reports"


def list_reports() -> list[Path]:
    """Return the files of the user's reports, the newest first."""
    return sorted(folder().glob("*.json"), reverse=True)


def read(path: Path) -> Report:
    """Return the report in a file. Raises ReportError."""
    try:
        return Report.from_dict(read_json(path, LIMITS))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (Malformed, ReportError) as error:
        raise ReportError(f"{path}: {error}") from None


def write(report: Report, path: Path | None = None) -> Path:
    """Write the report and return its file: `path`, else a new one in the user's folder. Raises
    ReportError."""
    if path is None:
        time = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
        path = folder() / f"{time}-{os.getpid()}.json"
    try:
        if path.parent == folder():
            path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report.to_dict(), allow_nan=False, indent=1)
        write_whole(path, text + "\n", kind=FileKind.REPORT, durable=False)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def _report(document: Any) -> Report:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Malformed(f'It must be an object with the format "{FORMAT}".')
    if document.get("version") != VERSION:
        raise Malformed(
            f"It has the version {document.get('version')!r}; this Diode reads version {VERSION}. "
            "Update diode-engine, or make the report again."
        )
    graphs = tuple(_make(Graph, each) for each in _list(document, "graphs"))
    products = tuple(_product(each, len(graphs)) for each in _list(document, "products"))
    notes = tuple(_list(document, "notes"))
    if not all(isinstance(note, str) for note in notes):
        raise Malformed("Its notes must be texts.")
    return _make(Report, {**document, "notes": notes, "graphs": graphs, "products": products})


def _product(document: Any, graphs: int) -> Product:
    if not isinstance(document, dict):
        raise Malformed("A product must be an object.")
    places = tuple(_make(Place, each) for each in _list(document, "places"))
    try:
        problem, kernel = document.get("problem"), document.get("kernel")
        made = {
            "places": places,
            "outcome": Outcome(document.get("outcome", "")),
            "problem": None if problem is None else Problem.from_dict(problem),
            "kernel": None if kernel is None else Candidate.from_dict(kernel),
        }
    except (RecordError, ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"A product is impossible: {shortened(str(error).rstrip('.'))}.") from None
    product = _make(Product, {**document, **made})
    if not 0 <= product.graph < graphs:
        raise Malformed(f"A product is of graph {product.graph}, and there are {graphs}.")
    return product


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise Malformed(f"Its field {name} must be a list.")
    return value


# What a field may be in the file, by its annotation; others are made before.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
}


def _make(kind: type[T], document: Any) -> T:
    """Return the record of this kind, of the document's fields; other fields are ignored."""
    if not isinstance(document, dict):
        raise Malformed(f"A {kind.__name__.lower()} must be an object.")
    known: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        value, types = document.get(field.name), _TYPES.get(str(field.type))
        if types is not None and (type(value) not in types or _is_negative(value)):
            raise Malformed(f"A {kind.__name__.lower()} has an impossible {field.name}: {value!r}.")
        known[field.name] = value
    return kind(**known)


def _is_negative(value: Any) -> bool:
    return isinstance(value, (int, float)) and value < 0

"""The programs that are known: by a report, by a shapeset, or by a feedback run in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from diode_app import text
from diode_app.data.predictors import Model, all_models, models_for
from diode_app.data.tables import Column, Row, make_row
from diode_engine import registry
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import DiodeError, ReportError
from diode_engine.problems.sources import read_shapeset
from diode_engine.problems.sources.shapeset import is_shapeset
from diode_engine.reports.record import Graph, Outcome, Product, Report, list_reports, read
from diode_engine.runs import find
from diode_engine.store import Store
from diode_engine.version import __version__

PROGRAM_COLUMNS = (
    Column("program", "program", "the command, or the file"),
    Column("kind", "kind", "a report of what was compiled; captured: products without choices; "
           "feedback: what a process with DIODE_FEEDBACK has benchmarked"),
    Column("products", "products", "how many it compiles", show=text.count, right=True),
    Column("saved_us", "saves µs", "what the chosen kernels save in a step beside the library's, "
           "in µs, as predicted", show=text.microseconds, right=True),
    Column("share", "saved", "the same, as a share of the library's time",
           show=lambda value: "" if value is None else text.percent(value), right=True, rank=1),
    Column("hardware", "GPU", "what the kernels are for", rank=3),
    Column("model", "model", "what has predicted", rank=4),
    Column("created", "made", "when", rank=2),
)  # fmt: skip
REPORT, CAPTURED, FEEDBACK = "report", "captured", "feedback"
_LARGEST = 4 << 20  # bytes of a shapeset in the folder of work


@dataclass(frozen=True)
class Source:
    """Where the products are: a file, or else a feedback run in the store."""

    path: Path | None = None
    run: int | None = None

    def __str__(self) -> str:
        return f"run:{self.run}" if self.path is None else str(self.path)

    @classmethod
    def named(cls, name: str) -> Source:
        """Return the source of this name (see `__str__`)."""
        run = name.removeprefix("run:")
        return cls(run=int(run)) if run != name and run.isdecimal() else cls(Path(name))


@dataclass(frozen=True)
class Program:
    """`report` has the products; those that nobody was asked about have no kernel. `model` and
    `hardware` are what the report names, and None where no such model is registered."""

    kind: str
    report: Report
    model: Model | None

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = (p.problem for p in self.report.products)
        return tuple(dict.fromkeys(p for p in found if p is not None))


# The programs


def find_sources() -> tuple[Source, ...]:
    """Return the reports of the user, then the shapesets in the folder of work."""
    here = sorted(path for path in Path.cwd().glob("*.json") if path.stat().st_size < _LARGEST)
    captured = [path.absolute() for path in here if is_shapeset(path)]
    return tuple(Source(path) for path in (*list_reports(), *captured))


def read_programs(here: Hardware | None) -> dict[Source, Program | DiodeError]:
    """Return the programs in files, those that cannot be read as the errors that say why."""
    found: dict[Source, Program | DiodeError] = {}
    for source in find_sources():
        try:
            found[source] = read_program(source, here)
        except DiodeError as error:
            found[source] = error
    return found


def list_programs(store: Store | None, here: Hardware | None) -> tuple[Row, ...]:
    """Return a row for each program, with the name of its source as the key."""
    rows = []
    for source, found in read_programs(here).items():
        record: dict[str, Any] = {"program": f"✗ {found}", "kind": "unreadable"}
        if isinstance(found, Program):
            record = _record(found)
        rows.append(make_row(str(source), record, PROGRAM_COLUMNS, {}))
    for status in () if store is None else find(store, "kind:feedback"):
        run = status.run
        record = {
            "program": f"run {run.id}: {' '.join(run.spec.get('program', ()))}", "kind": FEEDBACK,
            "created": f"{text.local(run.started):%Y-%m-%d %H:%M}",
        }  # fmt: skip
        rows.append(make_row(str(Source(run=run.id)), record, PROGRAM_COLUMNS, {}))
    return tuple(rows)


def _record(program: Program) -> dict[str, Any]:
    report = program.report
    known = program.kind == REPORT
    whole = report.predicted_us + report.saved_us
    return {
        "program": report.program,
        "kind": program.kind,
        "products": sum(product.count for product in report.products),
        "saved_us": report.saved_us if known else None,
        "share": report.saved_us / whole if known and whole else None,
        "hardware": report.hardware,
        "model": report.model,
        "created": text.minute(report.created),
    }


def read_program(source: Source, here: Hardware | None, store: Store | None = None) -> Program:
    """Return the program. One without a report is for the GPU `here`, or else for that of the first
    model. Raises DiodeError."""
    if source.path is None:
        if store is None or source.run is None:
            raise ReportError("The store cannot be read, and the feedback is in it.")
        run, table = store.run(source.run), store.read(run=source.run)
        gpu = table.environments[0].hardware if table.environments else here
        name = " ".join(run.spec.get("program", ())) or f"run {run.id}"
        return unasked(FEEDBACK, name, run.started, dict.fromkeys(table.problems, 1), gpu)
    if is_shapeset(source.path):
        found = dict.fromkeys(read_shapeset(source.path).problems(0), 1)
        made = datetime.fromtimestamp(source.path.stat().st_mtime, UTC)
        return unasked(CAPTURED, source.path.name, made, found, here)
    try:
        report = _read(source.path, source.path.stat().st_mtime_ns)
    except OSError as error:
        raise ReportError(f"{source.path} cannot be read: {error.strerror}.") from error
    return Program(REPORT, report, _model_for(report.hardware, report.model))


@lru_cache(maxsize=64)
def _read(path: Path, _version: int) -> Report:
    return read(path)


def _model_for(hardware: str, reference: str = "") -> Model | None:
    """Return the model of this reference for the GPU of this name, or else one that is for it."""
    manifests = [entry.manifest for entry in registry.overview().entries]
    gpus = {r.hardware.name: r.hardware for m in manifests if m is not None for r in m.records}
    models = models_for(gpus[hardware]) if hardware in gpus else ()
    named = (model for model in models if model.reference == reference)
    return next(named, models[0] if models else None)


def unasked(
    kind: str, name: str, made: datetime, problems: Mapping[Problem, int],
    hardware: Hardware | None,
) -> Program:  # fmt: skip
    """Return a program of whose products nobody has asked a model yet."""
    models = () if hardware is None else models_for(hardware)
    model = next(iter(models or all_models(None)), None)
    gpu = "an unknown GPU" if hardware is None else hardware.name
    products = tuple(
        Product(graph=0, name=str(problem), problem=problem, dynamic=False, count=count, places=(),
                outcome=Outcome.PREDICTED)
        for problem, count in problems.items()
    )  # fmt: skip
    report = Report(
        created=made.isoformat(timespec="seconds"), program=name, exit_code=None,
        diode=__version__, torch="", triton="",
        hardware=gpu if model is None else model.hardware.name,
        model="" if model is None else model.reference, fingerprint="", active=False, reason="",
        processes=1, cached_graphs=0, notes=(), graphs=(Graph("", "", 0),), products=products,
    )  # fmt: skip
    return Program(kind, report, model)

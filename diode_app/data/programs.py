"""The programs that are known (by a report, a shapeset, or a feedback run in the store), and their
products with their kernels. Where a program did not ask a model, or another model is to be
compared, it is asked here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from diode_app import text
from diode_app.data.choice import Answer, Question, answer
from diode_app.data.predictors import Model, all_models, models_for
from diode_app.data.problem_columns import dtype, layout, short, sizes
from diode_app.data.problem_text import parse_problem
from diode_app.data.tables import Column, Row, make_row
from diode_engine import paths, registry
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import DiodeError, RecordError, ReportError
from diode_engine.problems.sources import read_shapeset, write_shapeset
from diode_engine.problems.sources.shapeset import is_shapeset
from diode_engine.reports.record import Graph, Outcome, Product, Report, list_reports, read, write
from diode_engine.reports.text import describe_places
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
_SAME = 0.005  # of a time: what differs by less is the same


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
    """`report` has the products; those that nobody was asked about have no kernel. `model` is the
    one that the report names, or else one for its GPU; None where none is registered."""

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
            record = _program_record(found)
        rows.append(make_row(str(source), record, PROGRAM_COLUMNS, {}))
    for status in () if store is None else find(store, "kind:feedback"):
        run = status.run
        record = {
            "program": f"run {run.id}: {' '.join(run.spec.get('program', ()))}", "kind": FEEDBACK,
            "created": f"{run.started.astimezone():%Y-%m-%d %H:%M}",
        }  # fmt: skip
        rows.append(make_row(str(Source(run=run.id)), record, PROGRAM_COLUMNS, {}))
    return tuple(rows)


def _program_record(program: Program) -> dict[str, Any]:
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


# By hand


def parse_products(given: str) -> dict[Problem, int]:
    """Return the products in a text such as `mm 512 4096 1024 bf16 row/col x4, bmm 8 64 64 64`, and
    how many there are of each. Raises ReportError, with the part that is wrong."""
    found: dict[Problem, int] = {}
    for part in filter(None, (part.strip() for part in given.replace(";", ",").split(","))):
        words = part.split()
        count = words.pop() if words[-1][0] in "x×" and words[-1][1:].isdecimal() else "x1"
        try:
            problem = parse_problem(" ".join(words))
        except RecordError as error:
            raise ReportError(f"{part}: {error}") from None
        found[problem] = found.get(problem, 0) + int(count[1:])
    return found


def write_by_hand(given: str, here: Hardware | None) -> Source:
    """Write a report of these products, with what the model would choose, among the user's reports,
    and return where it is. Raises ReportError and ModelError."""
    problems = parse_products(given)
    program = unasked(REPORT, f"by hand: {given}", datetime.now(UTC), problems, here)
    answers = {} if program.model is None else ask_models(program.problems, program, None)
    products = (
        _answered(p, None if p.problem is None else answers.get(p.problem))
        for p in program.report.products
    )
    return Source(write(replace(program.report, products=tuple(products))))


def write_products(problems: Sequence[Problem]) -> Path:
    """Write a shapeset of these products, for a collection or `tune`. Raises ReportError where
    there are none, and DatasetError."""
    if not problems:
        raise ReportError("No product is listed that could be timed; Escape removes the filter.")
    digest = hashlib.sha256("".join(p.key for p in problems).encode()).hexdigest()[:12]
    path = paths.data_dir() / "programs" / f"{digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_shapeset(problems, path, "the dashboard's page of a program")
    return path


# The products


def ask_models(
    problems: Sequence[Problem], program: Program, other: Model | None
) -> dict[Problem, Answer]:
    """Return the answers of the program's model and of another one. Raises ModelError."""
    model = program.model
    assert model is not None
    version = program.report.torch.partition("+")[0]
    return {p: answer(Question(p, model, other, model.hardware, version)) for p in problems}


@dataclass(frozen=True)
class ProductView:
    """A product with what the compile chose or, where it did not ask, what the model would. Times
    are of one product, in µs, as predicted. `is_asked` is False until the model has answered;
    `is_fused` says whether the compile's times count what is fused behind the product; `other` is
    the kernel that is compared."""

    product: Product
    is_asked: bool
    is_fused: bool
    phase: str
    default_us: float | None
    other: str
    other_us: float | None

    @property
    def kernel(self) -> str:
        return short(self.product.kernel)

    @property
    def saved_us(self) -> float | None:
        """What all of them save in a step beside the library's kernel; None where it is unknown."""
        p = self.product
        return None if p.predicted_us is None or p.library_us is None else p.saved_us


def view_products(
    program: Program, answers: Mapping[Problem, Answer], beside: Program | None
) -> tuple[ProductView, ...]:
    """Return the products, with what is known of them so far. `beside` is a program whose products
    are compared: those of the same problem."""
    others = {} if beside is None else {p.problem: p for p in beside.report.products}
    found = []
    for product in program.report.products:
        said = answers.get(product.problem) if product.problem is not None else None
        choice = None if said is None or len(said.answers) < 2 else said.answers[1].choice
        kernel = None if choice is None else choice.candidates[0]
        us = None if choice is None else choice.predicted_us[0]
        if product.problem is not None and (match := others.get(product.problem)) is not None:
            kernel, us = match.kernel, match.predicted_us
        found.append(
            ProductView(
                product=_answered(product, said),
                is_asked=said is not None or bool(product.why),
                is_fused=_differs(product.library_us, None if said is None else said.aten_us),
                phase=program.report.graphs[product.graph].phase,
                default_us=None if said is None else said.default_us,
                other=short(kernel),
                other_us=us,
            )
        )
    return tuple(found)


def _differs(us: float | None, alone_us: float | None) -> bool:
    return us is not None and alone_us is not None and abs(us / alone_us - 1) > _SAME


def _answered(product: Product, said: Answer | None) -> Product:
    """Return the product with the model's choice, where the report has none and no reason."""
    if said is None or product.kernel is not None or product.why:
        return product
    choice = said.answers[0].choice
    if choice is None:
        why = "the model does not know such a product"
        return replace(product, outcome=Outcome.LEFT, why=why, library_us=said.aten_us)
    return replace(
        product, kernel=choice.candidates[0], why=str(choice.why), confidence=choice.confidence,
        predicted_us=choice.predicted_us[0], library_us=choice.library_us,
    )  # fmt: skip


def product_columns(other: str) -> tuple[Column, ...]:
    """Return the columns of the products; `other` is what is compared, "" for nothing."""
    beside = (
        Column("other", f"{other}: kernel", f"the kernel of {other}", rank=2),
        Column("other_us", "µs", f"its time as {other} predicts it, in µs", right=True, rank=2,
               show=text.microseconds),
    )  # fmt: skip
    return (
        Column("product", "product", "the operator, M×N×K (after the batch) and the type"),
        Column("count", "×", "how many there are in one run of the graph", right=True),
        Column("where", "where", "the module of the model that computes it", rank=3),
        Column("kernel", "kernel", "the chosen one", rank=1),
        Column("predicted_us", "µs", "the predicted time of one with this kernel, in µs",
               show=text.microseconds, right=True),
        Column("library_us", "ATen", "the predicted time of one with the library's kernel, in µs",
               show=text.microseconds, right=True),
        Column("default_us", "DEFAULT", "the predicted time of one with the best kernel that "
               "max-autotune would time, in µs", show=text.microseconds, right=True, rank=4),
        Column("saved_us", "saves µs", "what all of them save in a step beside the library's, in "
               "µs", show=text.microseconds, right=True),
        Column("confidence", "sure", "the probability that the kernel is within 5 % of the best",
               show=lambda value: "" if value is None else f"{value:.2f}", right=True, rank=2),
        *(beside if other else ()),
        Column("why", "why", "why this kernel, or why none was chosen", rank=8),
        Column("layout", "layout", "of both operands", rank=6),
        Column("phase", "phase", "of the graph: forward, backward or inference", rank=7),
    )  # fmt: skip


def product_rows(views: Sequence[ProductView], columns: Sequence[Column]) -> tuple[Row, ...]:
    return tuple(make_row(str(i), _view_record(view), columns, {}) for i, view in enumerate(views))


def _view_record(view: ProductView) -> dict[str, Any]:
    product, p = view.product, view.product.problem
    places = describe_places(product.places)
    more = f" +{len(places) - 1}" if len(places) > 1 else ""
    return {
        **({} if p is None else p.to_dict()),
        "product": product.name if p is None else f"{sizes(p)} {dtype(p)}",
        "count": product.count,
        "where": f"{places[0]}{more}" if places else "",
        "kernel": view.kernel or ("left" if product.why else ""),
        "layout": "" if p is None else layout(p),
        "outcome": str(product.outcome),
        **{name: getattr(product, name) for name in _PREDICTED},
        **{name: getattr(view, name) for name in _VIEWED},
    }


_PREDICTED = "predicted_us", "library_us", "confidence", "why"
_VIEWED = "default_us", "saved_us", "other", "other_us", "phase"

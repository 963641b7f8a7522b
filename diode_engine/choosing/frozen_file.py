"""The file of frozen choices, a document of TOML that docs/formats.md describes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diode_engine.choosing.frozen import (
    PLAIN,
    FrozenChoice,
    FrozenChoices,
    FrozenDecision,
    Origin,
    ProductForm,
    toml_value,
)
from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import decode_fields
from diode_engine.core.problem import Problem
from diode_engine.documents import (
    Limits,
    Malformed,
    check_format,
    parse_toml,
    read_bytes,
    shortened,
)
from diode_engine.errors import FrozenChoicesError, RecordError

FORMAT, VERSION = "diode-frozen-choices", 2  # from 2 on there is `by_rows`
# A program of a thousand products has a file of 300 KiB.
LIMITS = Limits(bytes=16 << 20)

_COMMENT = f"""\
# The kernels that torch.compile takes for a program, as Diode has chosen them. Times are predicted.
# Load them with the option diode_frozen_choices or DIODE_FROZEN_CHOICES=<this file>.
# `diode-engine freeze --check` says whether the program would get others now.
format = "{FORMAT}"
"""


def render(frozen: FrozenChoices) -> str:
    """Return the choices as the text of their file, sorted, a product a stanza."""
    version = VERSION if any(choice.by_rows for choice in frozen.choices) else 1
    parts = [f"{_COMMENT}version = {version}\n", _table("[made]", asdict(frozen.origin))]
    for choice in sorted(frozen.choices, key=lambda c: _order(c.product.problem, c.product)):
        product, kernel = choice.product, choice.kernel
        by_rows = [_stanza_of(*each) for each in choice.by_rows]
        what = "; ".join(map(str, choice.kernels)) or PLAIN
        said = f"# {product}: {what}\n[[product]]"
        stanza = {
            "problem": _shortest(product.problem),
            "dynamic": product.dynamic,
            "epilogue": product.epilogue,
            "batch_invariant": product.invariant or None,
            **({"by_rows": by_rows} if by_rows else _stanza_of(None, kernel)),
            "why": shortened(choice.why),
            "predicted_us": choice.predicted_us and _rounded(choice.predicted_us),
            "library_us": choice.library_us and _rounded(choice.library_us),
            "confidence": choice.confidence and round(choice.confidence, 2),
        }
        parts.append(_table(said, {n: v for n, v in stanza.items() if v not in (None, "", {})}))
    for each in sorted(frozen.decisions, key=lambda d: (d.what, _order(d.problem))):
        stanza = {"what": each.what, "problem": _shortest(each.problem), "answer": each.answer}
        parts.append(_table(f"# {each.problem}\n[[decision]]", stanza))
    return "\n".join(parts)


def _stanza_of(most_rows: int | None, kernel: Candidate | None) -> dict[str, Any]:
    limit = {} if most_rows is None else {"most_rows": most_rows}
    if kernel is None:
        return {"kernel": PLAIN}
    return {**limit, "kernel": kernel.template, "config": dict(kernel.kwargs)}


def _order(problem: Problem, product: ProductForm | None = None) -> tuple[str, ...]:
    sizes = [f"{problem.to_dict()[name]:010}" for name in ("B", "M", "N", "K")]
    return str(problem.op), *sizes, str(product or problem)


def _rounded(us: float) -> float:
    return float(f"{us:.3g}")


def _table(head: str, values: Mapping[str, Any]) -> str:
    return "".join((f"{head}\n", *(f"{name} = {toml_value(v)}\n" for name, v in values.items())))


def _shortest(problem: Problem) -> Mapping[str, Any]:
    """Return the problem's fields without those that `Problem.from_dict` fills in."""
    kept = problem.to_dict()
    for name in ("B", *list(kept)[6:]):
        less = {n: v for n, v in kept.items() if n != name}
        if Problem.from_dict(less) == problem:
            kept = less
    return kept


def read(path: Path) -> FrozenChoices:
    """Return the choices in a file. Raises FrozenChoicesError where it cannot be read, is of
    another kind or of a newer Diode, or is malformed."""
    try:
        data = read_bytes(path, LIMITS)
        document = parse_toml(data)
        return _frozen(document, str(path), hashlib.sha256(data).hexdigest())
    except OSError as error:
        raise FrozenChoicesError(
            f"The file of frozen choices {path} cannot be read: {error.strerror or error}. Make it "
            f"with diode-engine freeze -o {path} -- COMMAND"
        ) from error
    except (Malformed, RecordError, TypeError) as error:
        why = shortened(str(error).rstrip("."))
        raise FrozenChoicesError(f"{path} is no file of frozen choices: {why}.") from None


@dataclass(frozen=True)
class _Range:
    """A kernel that a program takes for up to `most_rows` rows."""

    kernel: str
    config: Mapping[str, Any] = field(default_factory=dict)
    most_rows: int | None = None


@dataclass(frozen=True)
class _Product:
    """A stanza of a product."""

    problem: Problem
    kernel: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    by_rows: tuple[_Range, ...] = ()
    dynamic: str = ""
    epilogue: str = ""
    batch_invariant: bool = False
    why: str = ""
    predicted_us: float | None = None
    library_us: float | None = None
    confidence: float | None = None

    def choice(self) -> FrozenChoice:
        product = ProductForm(self.problem, self.epilogue, self.dynamic, self.batch_invariant)
        if bool(self.kernel) == bool(self.by_rows):
            raise Malformed(f"It must have a kernel, or kernels by_rows, for {product}.")
        limits = [each.most_rows for each in self.by_rows[:-1]]
        ascending = all(
            low is not None and high is not None and low < high
            for low, high in itertools.pairwise([0, *limits])
        )
        if self.by_rows and (not ascending or self.by_rows[-1].most_rows is not None):
            raise Malformed(f"most_rows must grow, and the last kernel have none, for {product}.")
        by_rows = tuple((each.most_rows, _candidate(each)) for each in self.by_rows)
        kernel = by_rows[-1][1] if by_rows else _candidate(self)
        times = self.predicted_us, self.library_us
        return FrozenChoice(
            product,
            None if self.kernel == PLAIN else kernel,
            self.why,
            *times,
            self.confidence,
            by_rows,
        )


def _candidate(stanza: _Range | _Product) -> Candidate:
    return Candidate(stanza.kernel, tuple(stanza.config.items()))


@dataclass(frozen=True)
class _Document:
    made: Origin
    product: tuple[_Product, ...] = ()
    decision: tuple[FrozenDecision, ...] = ()


def _frozen(given: Any, path: str, key: str) -> FrozenChoices:
    check_format(given, FORMAT, VERSION)
    document: _Document = decode_fields(_Document, given)
    choices = tuple(product.choice() for product in document.product)
    # An earlier Diode wrote one choice twice where a dynamic size was the length of a row.
    different = {(choice.product.key, choice.kernels) for choice in choices}
    if len({choice.product.key for choice in choices}) < len(different):
        raise Malformed("It has two choices for one product.")
    return FrozenChoices(document.made, choices, document.decision, path, key)

"""The file of frozen choices, a document of TOML that docs/formats.md describes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
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
from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, Malformed, parse_toml, read_bytes, shortened
from diode_engine.errors import FrozenChoicesError, RecordError

FORMAT, VERSION = "diode-frozen-choices", 1
# A program of a thousand products has a file of 300 KiB.
LIMITS = Limits(bytes=16 << 20)

_COMMENT = f"""\
# The kernels that torch.compile takes for a program, as Diode has chosen them. Times are predicted.
# Load them with the option diode_frozen_choices or DIODE_FROZEN_CHOICES=<this file>.
# `diode-engine freeze --check` says whether the program would get others now.
format = "{FORMAT}"
version = {VERSION}
"""


def render(frozen: FrozenChoices) -> str:
    """Return the choices as the text of their file, sorted, a product a stanza."""
    parts = [_COMMENT, _table("[made]", asdict(frozen.origin))]
    for choice in sorted(frozen.choices, key=lambda c: _order(c.product.problem, c.product)):
        product, kernel = choice.product, choice.kernel
        said = f"# {product}: {kernel or PLAIN}\n[[product]]"
        stanza = {
            "problem": _shortest(product.problem),
            "dynamic": product.dynamic,
            "epilogue": product.epilogue,
            "batch_invariant": product.invariant or None,
            "kernel": PLAIN if kernel is None else kernel.template,
            "config": {} if kernel is None else dict(kernel.kwargs),
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


def _frozen(document: Mapping[str, Any], path: str, key: str) -> FrozenChoices:
    if document.get("format") != FORMAT:
        raise Malformed(f'It must have the format "{FORMAT}".')
    if document.get("version") != VERSION:
        raise Malformed(
            f"It has the version {document.get('version')!r}; this Diode reads version {VERSION}."
        )
    made = document.get("made")
    names = [field.name for field in fields(Origin)]
    if not isinstance(made, dict) or any(not isinstance(made.get(n), str) for n in names):
        raise Malformed(f"Its table made must have the texts {', '.join(names)}.")
    choices = tuple(_choice(each) for each in _stanzas(document, "product"))
    decisions = tuple(
        FrozenDecision(str(each.get("what")), _problem(each), each.get("answer") is True)
        for each in _stanzas(document, "decision")
    )
    if len({choice.product.key for choice in choices}) < len(choices):
        raise Malformed("It has two choices for one product.")
    return FrozenChoices(Origin(**{n: made[n] for n in names}), choices, decisions, path, key)


def _stanzas(document: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed(f"Its field {name} must be a list of tables.")
    return found


def _problem(stanza: Mapping[str, Any]) -> Problem:
    if not isinstance(stanza.get("problem"), dict):
        raise Malformed("A stanza has no problem.")
    return Problem.from_dict(stanza["problem"])


def _choice(stanza: Mapping[str, Any]) -> FrozenChoice:
    product = ProductForm(
        _problem(stanza),
        str(stanza.get("epilogue", "")),
        str(stanza.get("dynamic", "")),
        stanza.get("batch_invariant") is True,
    )
    kernel, config = stanza.get("kernel"), stanza.get("config", {})
    if not isinstance(kernel, str) or not isinstance(config, dict):
        raise Malformed(f"The choice for {product} must have a kernel, a text, and its config.")
    numbers = [stanza.get(name) for name in ("predicted_us", "library_us", "confidence")]
    if any(number is not None and type(number) not in (int, float) for number in numbers):
        raise Malformed(f"The choice for {product} has a time that is no number.")
    made = None if kernel == PLAIN else Candidate(kernel, tuple(config.items()))
    return FrozenChoice(product, made, str(stanza.get("why", "")), *numbers)

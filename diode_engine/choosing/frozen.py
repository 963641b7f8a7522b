"""Frozen choices: a file of the kernels that a program's products take, for people to review and
for compiles that load no model. docs/formats.md describes it.

A compile with frozen choices takes exactly these kernels, or raises FrozenChoicesError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, Malformed, parse_toml, read_bytes, shortened
from diode_engine.errors import FrozenChoicesError, RecordError

FORMAT, VERSION = "diode-frozen-choices", 1
# A program of a thousand products has a file of 300 KiB.
LIMITS = Limits(bytes=16 << 20)

# An environment variable that `diode-engine freeze` sets: each product gets one kernel, and frozen
# choices are not loaded.
FREEZING = "DIODE_FREEZE"

PLAIN = "plain"  # in place of a kernel: the product is lowered as by plain torch.compile
_COMMENT = f"""\
# The kernels that torch.compile takes for a program, as Diode has chosen them. Times are predicted.
# Load them with the option diode_frozen_choices or DIODE_FROZEN_CHOICES=<this file>.
# `diode-engine freeze --check` says whether the program would get others now.
format = "{FORMAT}"
version = {VERSION}
"""


@dataclass(frozen=True)
class ProductForm:
    """A product as a compile asks for its kernel.

    `epilogue` describes what Inductor may fuse behind it, and `dynamic` the ranges of its dynamic
    sizes ("M 2 to 8192"); both are "" where there is none. The size that the problem has for a
    dynamic one is the first that the program had, and does not matter. `invariant` says whether the
    results of a row must not depend on the batch.
    """

    problem: Problem
    epilogue: str = ""
    dynamic: str = ""
    invariant: bool = False

    @cached_property
    def key(self) -> Hashable:
        """Everything by which a product is found in the file."""
        dynamic = {part.split()[0] for part in self.dynamic.split(", ") if part}
        given = self.problem.to_dict().items()
        return (
            tuple(item for item in given if item[0] not in dynamic),
            self.epilogue, self.dynamic, self.invariant,
        )  # fmt: skip

    def __str__(self) -> str:
        epilogue = self.epilogue and f"with an epilogue ({self.epilogue})"
        more = (self.dynamic, epilogue, "batch-invariant" if self.invariant else "")
        return ", ".join((str(self.problem), *filter(None, more)))


@dataclass(frozen=True)
class FrozenChoice:
    """The kernel of a product; None where it is lowered as by plain torch.compile. `why` is the
    reason, and the others are as in `Choice`, None where they are unknown."""

    product: ProductForm
    kernel: Candidate | None
    why: str
    predicted_us: float | None = None
    library_us: float | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class FrozenDecision:
    """Whether something is done to a product before it is lowered: `what` names it."""

    what: str
    problem: Problem
    answer: bool


@dataclass(frozen=True)
class Origin:
    """What the choices were made for and by. `torch` is without the patch number."""

    program: str
    gpu: str
    torch: str
    triton: str
    diode: str
    model: str
    model_key: str
    fingerprint: str


@dataclass(frozen=True, eq=False)
class FrozenChoices:
    """The choices of a program. `path` is their file, and `key` the SHA-256 of its bytes; both are
    "" before they are written."""

    origin: Origin
    choices: tuple[FrozenChoice, ...]
    decisions: tuple[FrozenDecision, ...] = ()
    path: str = ""
    key: str = ""

    @cached_property
    def _choices(self) -> Mapping[Hashable, FrozenChoice]:
        return {choice.product.key: choice for choice in self.choices}

    @cached_property
    def _decisions(self) -> Mapping[tuple[str, Problem], bool]:
        return {(each.what, each.problem): each.answer for each in self.decisions}

    def check(self, gpu: str, torch: str, triton: str) -> None:
        """Raise FrozenChoicesError where they were made for another GPU, minor version of torch or
        version of Triton than these."""
        here = {"gpu": gpu, "torch": without_patch(torch), "triton": triton}
        made = {name: getattr(self.origin, name) for name in here}
        if made != here:
            words = [f"{made[n]}, and this is {here[n]}" for n in ("gpu",) if made[n] != here[n]]
            words += [
                f"{n} {made[n]}, and this is {n} {here[n]}"
                for n in ("torch", "triton") if made[n] != here[n]
            ]  # fmt: skip
            self.refuse(f"it was made for {'; for '.join(words)}")

    def find(self, product: ProductForm) -> FrozenChoice:
        """Return the choice for the product. Raises FrozenChoicesError where there is none."""
        found = self._choices.get(product.key)
        if found is None:
            self.refuse(f"it has no choice for {product}")
        return found

    def decide(self, what: str, problem: Problem) -> bool:
        """Return the decision. Raises FrozenChoicesError where there is none."""
        found = self._decisions.get((what, problem))
        if found is None:
            self.refuse(f"it does not say whether to {what}, for {problem}")
        return found

    def refuse(self, why: str) -> NoReturn:
        """Raise FrozenChoicesError with this reason, and with the command that makes the file
        anew."""
        raise FrozenChoicesError(
            f"The frozen choices in {self.path} cannot be taken: {why}. To make them anew, run "
            f"diode-engine freeze -o {self.path} -- {self.origin.program}"
        )

    def describe_differences(self, fresh: FrozenChoices) -> list[str]:
        """Return a sentence for each way in which fresh choices differ from these: in what they
        were made for, the model, a product that is missing, or its kernel. Times do not count."""
        names = ("gpu", "torch", "triton", "model_key")
        said = [
            f"{name.replace('_', ' ')}: {getattr(self.origin, name)} in the file, "
            f"{getattr(fresh.origin, name)} now."
            for name in names if getattr(self.origin, name) != getattr(fresh.origin, name)
        ]  # fmt: skip
        mine, theirs = (dict(_described(each)) for each in (self, fresh))
        for key, (name, kernel) in {**theirs, **mine}.items():
            if key not in mine:
                said.append(f"{name}: not in the file, {kernel} now.")
            elif key not in theirs:
                said.append(f"{name}: {kernel} in the file, and no longer in the program.")
            elif kernel != theirs[key][1]:
                said.append(f"{name}: {kernel} in the file, {theirs[key][1]} now.")
        return said


def _described(frozen: FrozenChoices) -> Iterable[tuple[Hashable, tuple[str, str]]]:
    """Yield the keys of products and decisions, their names, and what is frozen for them."""
    for choice in frozen.choices:
        kernel = choice.kernel
        # The short form of a kernel leaves some parameters out.
        said = f"{kernel.template} {_inline(dict(kernel.kwargs))}" if kernel else PLAIN
        yield choice.product.key, (str(choice.product), said)
    for each in frozen.decisions:
        name = f"whether to {each.what}, for {each.problem}"
        yield (each.what, each.problem), (name, "yes" if each.answer else "no")


def without_patch(version: str) -> str:
    """Return the first two numbers of a version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


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
    return "".join((f"{head}\n", *(f"{name} = {_value(v)}\n" for name, v in values.items())))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _inline(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _inline(values: Mapping[str, Any]) -> str:
    return f"{{ {', '.join(f'{name} = {_value(v)}' for name, v in values.items())} }}"


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
    frozen = FrozenChoices(Origin(**{n: made[n] for n in names}), choices, decisions, path, key)
    if len(frozen._choices) < len(choices):
        raise Malformed("It has two choices for one product.")
    return frozen


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

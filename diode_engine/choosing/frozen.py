"""Frozen choices: a file of the kernels that a program's products take, for people to review and
for compiles that load no model. docs/formats.md describes it.

A compile with frozen choices takes exactly these kernels, or raises FrozenChoicesError.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.errors import FrozenChoicesError
from diode_engine.version import without_patch

# An environment variable that `diode-engine freeze` sets: no kernels are timed, and frozen choices
# are not loaded.
FREEZING = "DIODE_FREEZE"

PLAIN = "plain"  # in place of a kernel: the product is lowered as by plain torch.compile


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
        return _fixed_fields(self.problem, dynamic), self.epilogue, self.dynamic, self.invariant

    def __str__(self) -> str:
        epilogue = self.epilogue and f"with an epilogue ({self.epilogue})"
        more = (self.dynamic, epilogue, "batch-invariant" if self.invariant else "")
        return ", ".join((str(self.problem), *filter(None, more)))


@dataclass(frozen=True)
class FrozenChoice:
    """The kernel of a product; None where it is lowered as by plain torch.compile. `why` is the
    reason, and the others are as in `Choice`, None where they are unknown. Where the program takes
    one of several kernels `by_rows`, `kernel` is that for the most rows."""

    product: ProductForm
    kernel: Candidate | None
    why: str
    predicted_us: float | None = None
    library_us: float | None = None
    confidence: float | None = None
    by_rows: tuple[tuple[int | None, Candidate], ...] = ()

    @property
    def kernels(self) -> tuple[Candidate, ...]:
        """All kernels of the product, for the fewest rows first."""
        if self.by_rows:
            return tuple(kernel for _, kernel in self.by_rows)
        return () if self.kernel is None else (self.kernel,)


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

    def check(self, gpu: str, torch: str, triton: str) -> None:
        """Raise FrozenChoicesError where they were made for another GPU, minor version of torch or
        version of Triton than these."""
        here = {"gpu": gpu, "torch": without_patch(torch), "triton": triton}
        words = [
            f"{what}{made}, and this is {what}{now}"
            for (name, now), what in zip(here.items(), ("", "torch ", "triton "), strict=True)
            if (made := getattr(self.origin, name)) != now
        ]
        if words:
            self.refuse(f"it was made for {'; for '.join(words)}")

    def find(self, product: ProductForm) -> FrozenChoice:
        """Return the choice for the product. Raises FrozenChoicesError where there is none."""
        found = self._choices.get(product.key)
        if found is None:
            self.refuse(f"it has no choice for {product}")
        return found

    def decide(self, what: str, problem: Problem, dynamic: Collection[str] = ()) -> bool:
        """Return the decision; of a product with these `dynamic` sizes it is no where there is
        none, as for few rows. Raises FrozenChoicesError where there is none for another."""
        wanted = _fixed_fields(problem, dynamic)
        same = [d for d in self.decisions if _fixed_fields(d.problem, dynamic) == wanted]
        found = [each.answer for each in same if each.what == what]
        if not found and not dynamic:
            self.refuse(f"it does not say whether to {what}, for {problem}")
        return bool(found) and all(found)

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


def _fixed_fields(problem: Problem, dynamic: Collection[str]) -> Hashable:
    """Return the fields of a problem that do not follow from the values of its dynamic sizes. The
    alignment of an operand follows from the length of its rows (or columns)."""
    of = {"a_align": "MK"[problem.a.layout == "row"], "b_align": "KN"[problem.b.layout == "row"]}
    return tuple((n, v) for n, v in problem.to_dict().items() if of.get(n, n) not in dynamic)


def _described(frozen: FrozenChoices) -> Iterable[tuple[Hashable, tuple[str, str]]]:
    """Yield the keys of products and decisions, their names, and what is frozen for them."""
    for choice in frozen.choices:
        limits = [most for most, _ in choice.by_rows] or [None]
        # The short form of a kernel leaves some parameters out.
        said = "; ".join(
            f"{kernel.template} {inline_table(dict(kernel.kwargs))}"
            f"{f' up to {most} rows' if most else ''}"
            for most, kernel in zip(limits, choice.kernels, strict=False)
        )
        said = said or PLAIN
        yield choice.product.key, (str(choice.product), said)
    for each in frozen.decisions:
        name = f"whether to {each.what}, for {each.problem}"
        yield (each.what, each.problem), (name, "yes" if each.answer else "no")


def toml_value(value: Any) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, Mapping):
        return inline_table(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):  # one item a line
        return "".join(("[\n", *(f"  {toml_value(item)},\n" for item in value), "]"))
    return str(value).lower() if isinstance(value, bool) else repr(value)


def inline_table(values: Mapping[str, Any]) -> str:
    """Return the values as a table of TOML in one line."""
    return f"{{ {', '.join(f'{name} = {toml_value(v)}' for name, v in values.items())} }}"

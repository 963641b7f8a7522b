"""What is said of a program, and of one of its products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from textual.content import Content

from diode_app import text
from diode_app.data.predictors import Model
from diode_app.data.program import ProductView
from diode_app.data.programs import Program
from diode_engine.reports.record import Outcome, Product

_FUSED = " It counts what fusing the following operations saves; the times below do not."
_MODULES, _LINES = 3, 4  # of a product that are named
_OUTCOMES = {
    Outcome.CHOSEN: "The compile took this kernel.",
    Outcome.PREDICTED: "No compile has asked Diode for it: this is what it would choose.",
    Outcome.LEFT: "Diode makes no choice here.",
}


def summary(
    program: Program, views: Sequence[ProductView], beside: Model | Program | None
) -> Content:
    """Return the sums over all products, and what a reader has to know."""
    report = program.report
    known = [v for v in views if v.product.predicted_us is not None]
    whole = math.fsum(v.product.count * (v.product.predicted_us or 0.0) for v in known)
    saved = math.fsum(v.saved_us or 0.0 for v in known)
    share = saved / (whole + saved) if whole + saved else 0.0
    left = sum(1 for v in views if v.product.why and not v.kernel)
    by = f" by {report.model}" if report.model else ", and no model is there for it"
    other = beside.report.program if isinstance(beside, Program) else beside and beside.reference
    lines = [
        Content.assemble(
            f"{sum(v.product.count for v in views):,} products for {report.hardware}{by}: "
            f"{text.microseconds(whole) or '0'} µs, which saves ",
            (f"{text.microseconds(saved) or '0'} µs ({100 * share:.0f} %)", "bold $text-success"),
            " beside the library's kernels",
            f"; {left} left" if left else "",
            f"; 2 is {other}" if other else "",
        )
    ]
    waits = sum(1 for v in views if not v.is_asked and v.product.problem is not None)
    told = "All times are predictions"
    if report.search_seconds:
        told += f"; a search would take about {text.seconds(report.search_seconds)}"
    told += f"; asking the model about {waits} more ..." if waits and program.model else "."
    model = program.model
    if model is not None and report.model not in ("", model.reference):
        told += f" {report.model} is not here: what the report does not say is {model.reference}'s."
    lines.append(Content.styled(" ".join((told, *report.notes)), "dim"))
    return Content("\n").join(lines)


def product_words(view: ProductView, views: Sequence[ProductView]) -> Content:
    """Return what one product gains and why, and where it is."""
    product = view.product
    lines = [Content.assemble((product.name, "bold"), f" ×{product.count}")]
    whole = math.fsum(max(0.0, v.saved_us or 0.0) for v in views)
    if view.saved_us is not None and view.saved_us > 0:
        lines.append(
            Content.assemble(
                ("saves ", "dim"),
                (f"{text.microseconds(view.saved_us)} µs in a step", "bold $text-success"),
                f", {100 * view.saved_us / whole:.0f} % of all that is saved",
            )
        )
    sure = "" if product.confidence is None else f", sure {product.confidence:.2f}"
    for name, us in (
        (f"{view.kernel}{sure}", product.predicted_us),
        ("ATen", product.library_us),
        ("best of DEFAULT", view.default_us),
    ):
        if us is not None:
            lines.append(Content(f"{text.microseconds(us):>10} µs  {name}"))
    if product.why:
        fused = _FUSED if view.is_fused else ""
        lines.append(Content(f"Why: {product.why}. {_OUTCOMES[product.outcome]}{fused}"))
    lines += _places(product)
    return Content("\n").join(lines)


def _places(product: Product) -> Iterator[Content]:
    """Yield each line of code that computes the product, with the modules that it is for."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for place in product.places:
        at = f"{place.file}:{place.line}" if place.file else ""
        times = f" ×{place.count}" if place.count > 1 else ""
        module = f"{place.module or 'outside of a module'}{times}"
        lines.setdefault((place.kind, at, place.code), []).append(module)
    for (kind, at, code), modules in list(lines.items())[:_LINES]:
        more = f" and {len(modules) - _MODULES} more" if len(modules) > _MODULES else ""
        named = f"{', '.join(modules[:_MODULES])}{more}"
        words = " ".join(filter(None, ("In", named, kind and f"({kind}),", at)))
        yield Content.assemble(f"{words.removesuffix(',')} ", (code, "dim"))
    if len(lines) > _LINES:
        yield Content.styled(f"and in {len(lines) - _LINES} more lines", "dim")

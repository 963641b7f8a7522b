"""An answer in words: the choice in some lines, and why it is made."""

from __future__ import annotations

import math

from textual.content import Content

from diode_app import text
from diode_app.data.choice import SURE, Answer, RankReasons
from diode_app.data.predictors import ModelAnswer
from diode_app.data.problem_columns import short

_BAR = 12
_NOTHING = 0.005  # of a log time: it reads 1.00×


def headline(found: Answer) -> Content:
    """Return the choice of each model, then what it is compared with."""
    lines = [_choice(number, answer) for number, answer in enumerate(found.answers, 1)]
    choice = found.answers[0].choice
    if len(found.answers) > 1 and (same := _agreement(found)):
        lines.append(Content(same))
    beside = [
        f"{name} {text.microseconds(us)} µs ({us / choice.predicted_us[0]:.2f}×)"
        for name, us in (("ATen", found.aten_us), ("best of DEFAULT", found.default_us))
        if us is not None and choice is not None
    ]
    roof = found.roofline
    if roof is not None:
        beside.append(f"roofline {text.microseconds(roof.time_us)} µs")
    if beside and choice is not None:
        lines.append(Content.styled(" · ".join(beside), "dim"))
    q = found.question
    fit = f"{found.prediction.launchable:,} of {len(found.prediction.candidates):,} candidates "
    fit += f"fit {q.hardware.name}"
    if q.hardware != q.model.hardware:
        fit += f", {q.model.likeness:.2f} like the {q.model.hardware.name} of the model"
    lines.append(Content.styled(fit, "dim"))
    return Content("\n").join(lines)


def _choice(number: int, answer: ModelAnswer) -> Content:
    choice, prediction = answer.choice, answer.prediction
    if choice is None:
        return Content.assemble(
            (f"{number} ", "bold $primary"),
            f"{answer.model.reference} cannot say: it was not trained on this op or type. "
            "A compile takes the library's kernel.",
        )
    sure = ""
    if prediction.confidence is not None:
        sure = f"  sure {prediction.confidence:.2f}"
        to_time = prediction.count_to_reach(SURE)
        if to_time is not None and to_time > 1:
            sure += f"; {SURE:.2f} by timing {to_time}"
    return Content.assemble(
        (f"{number} ", "bold $primary"),
        f"{answer.model.reference} takes ",
        (short(choice.candidates[0]), "bold $text-success"),
        f"  {text.microseconds(choice.predicted_us[0])} µs",
        sure,
        (f"\n  {choice.why}", "dim"),
    )


def _agreement(found: Answer) -> str:
    ours, theirs = found.answers
    if ours.choice is None or theirs.choice is None:
        return ""
    if ours.choice.candidates == theirs.choice.candidates:
        return "  Both take the same."
    if found.other_us is None:
        return ""
    ratio = found.other_us / ours.choice.predicted_us[0]
    return (
        f"  By {ours.model.reference} the choice of {theirs.model.reference} takes "
        f"{text.microseconds(found.other_us)} µs ({ratio:.2f}×)."
    )


def why_words(found: RankReasons) -> Content:
    """Return the comparison with another kernel, what each group of features adds to it, and the
    resources that the kernel needs."""
    lines = [Content.styled(short(found.candidate), "bold")]
    if found.baseline is not None and found.candidate_us is not None:
        assert found.baseline_us is not None
        ratio = found.candidate_us / found.baseline_us
        lines += [
            Content(f"{text.microseconds(found.candidate_us)} µs, {ratio:.2f}× as long as"),
            Content(f"{short(found.baseline)}, {text.microseconds(found.baseline_us)} µs."),
            Content(""),
            Content.styled("What makes it faster (▼) and slower (▲)", "dim"),
        ]
        most = max((abs(math.log(factor)) for _, factor in found.factors), default=0.0)
        for name, factor in found.factors:
            lines.append(_factor(name, factor, most))
        lines.append(Content.styled("Shapley values; they multiply to the ratio above.", "dim"))
    resources = found.resources
    if resources is None:
        lines += [Content(""), Content("The features do not know this kernel.")]
        return Content("\n").join(lines)
    library = found.candidate.is_extern
    lines += [
        Content(""),
        Content.styled("Estimated" + (", with guessed tiles" if library else ""), "dim"),
        Content(f"{resources.tiles:,.0f} tiles in {resources.waves:,.2f} waves"),
        Content(f"multiprocessors busy {100 * resources.fill:.0f} % of the time"),
        Content(
            f"{text.size(round(resources.shared_bytes))} shared, {resources.registers:.0f} "
            f"registers a thread, {resources.blocks:.0f} blocks a multiprocessor"
        ),
        Content(""),
        Content.styled("Time of each part; they overlap", "dim"),
    ]
    longest = resources.limits_us[0][1]
    for name, us in resources.limits_us:
        lines.append(
            Content.assemble(
                (text.bar(us / longest, _BAR), "$primary"),
                f" {text.microseconds(us):>9} µs {name}",
            )
        )
    return Content("\n").join(lines)


def _factor(name: str, factor: float, most: float) -> Content:
    share = abs(math.log(factor))
    if share < _NOTHING:
        sign, style = "·", "dim"
    elif factor < 1:
        sign, style = "▼", "$text-success"
    else:
        sign, style = "▲", "$text-warning"
    bar = text.bar(share / most if most else 0.0, _BAR)
    return Content.assemble((f"{sign} {factor:5.2f}× ", style), bar, f" {name}")

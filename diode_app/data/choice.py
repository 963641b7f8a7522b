"""What a model would choose for a problem, among all that Inductor could offer; needs no GPU and no
torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_app.data import predictors
from diode_app.data.predictors import Model, ModelAnswer
from diode_app.data.problem import in_default, known_us
from diode_app.data.problem_columns import ranking_columns, short
from diode_app.data.tables import Row, make_row
from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import TYPES, Bias
from diode_engine.core.problem import Problem
from diode_engine.models.estimates import Resources, Roofline, resources, roofline
from diode_engine.models.explain import Explanation, explain, rival
from diode_engine.problems.spaces import exhaustive_space

# The confidence that is wanted of timing several kernels (Prediction.count_to_reach).
SURE = 0.9


@dataclass(frozen=True)
class Question:
    """What is asked. `other` is a model to compare with; `hardware` is what the kernels would run
    on; `torch` is the version whose candidates are offered (empty: the newest known one)."""

    problem: Problem
    model: Model
    other: Model | None
    hardware: Hardware
    torch: str = ""

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words after `diode-engine explain` that ask the same of the model; None where that is
        not possible, for an unusual alignment or type."""
        p = self.problem
        own = {attribute.name: p.op_fields[attribute.name] for attribute in p.op.attributes}
        usual = Problem.make(
            p.op, p.M, p.N, p.K, p.dtype, B=p.B, a_layout=p.a.layout, b_layout=p.b.layout,
            allow_tf32=p.allow_tf32, bias=p.bias, **own,
        )  # fmt: skip
        if p.dtype.short not in TYPES or p != usual:
            return None
        options = {
            "batch": p.B if p.op.batched else None,
            "dtype": "tf32" if p.allow_tf32 else p.dtype.short,
            "layouts": f"{p.a.layout}/{p.b.layout}",
            "bias": None if p.bias is Bias.NONE else p.bias,
            "model": self.model.reference,
            "hardware": self.hardware.slug,
            "torch": self.torch or None,
        }
        sizes = (str(p.op), str(p.M), str(p.N), str(p.K))
        given = (f"--{name}={value}" for name, value in options.items() if value is not None)
        unusual = (
            f"--with={attribute.name}={own[attribute.name]}"
            for attribute in p.op.attributes if own[attribute.name] != attribute.usual
        )  # fmt: skip
        return (*sizes, *given, *unusual)


@dataclass(frozen=True)
class Answer:
    """`answers` are those of the model and, where one was named, of the other model. `rows` are the
    candidates for which the model has a prediction, the fastest first. The other fields are its
    predictions in microseconds, None where it has none: for ATen's best kernel, for the best one of
    the DEFAULT space, and for the other model's choice."""

    question: Question
    answers: tuple[ModelAnswer, ...]
    rows: tuple[Row, ...]
    ranked: tuple[Candidate, ...]  # of `rows`
    roofline: Roofline | None
    aten_us: float | None
    default_us: float | None
    other_us: float | None

    @property
    def prediction(self) -> Prediction:
        """The model's own prediction."""
        return self.answers[0].prediction


def answer(question: Question) -> Answer:
    """Raises ModelError where a model cannot be loaded."""
    problem, hardware = question.problem, question.hardware
    candidates = exhaustive_space(problem, question.torch)
    roof, base = roofline(problem, candidates, hardware)
    models = [question.model] if question.other is None else [question.model, question.other]
    answers = tuple(predictors.predict(model, problem, candidates, hardware) for model in models)
    space = in_default(problem, candidates, question.torch)
    extern = np.array([c.is_extern for c in candidates], np.bool_)
    us, order = answers[0].prediction.predicted_us, answers[0].prediction.order
    chosen = [each.place for each in answers]
    rows = []
    for rank, i in enumerate(order.tolist(), 1):
        times = [float(each.prediction.predicted_us[i]) for each in answers]
        record = {
            "rank": rank,
            "taken by": " ".join(str(n) for n, place in enumerate(chosen, 1) if place == i),
            "candidate": short(candidates[i]),
            "predicted_us": times[0],
            "behind": times[0] / float(us[order[0]]) - 1,
            "other_us": known_us(times[1]) if len(times) > 1 else None,
            "roofline_us": known_us(float(base[i])),
            "space": "library" if extern[i] else "DEFAULT" if space[i] else "",
            **candidates[i].to_dict(),
        }
        rows.append(make_row(candidates[i].key, record, ranking_columns(True), {}))
    other = answers[-1].place if len(answers) > 1 else None
    return Answer(
        question=question,
        answers=answers,
        rows=tuple(rows),
        ranked=tuple(candidates[i] for i in order),
        roofline=roof,
        aten_us=_least(us[extern]),
        default_us=_least(us[space]),
        other_us=None if other is None else known_us(float(us[other])),
    )


def _least(us: npt.NDArray[np.float64]) -> float | None:
    known = us[~np.isnan(us)]
    return float(known.min()) if len(known) else None


@dataclass(frozen=True)
class RankReasons:
    """Why the model puts one candidate before or behind another; `difference` is None where the
    model does not predict both."""

    candidate: Candidate
    baseline: Candidate | None
    difference: Explanation | None
    resources: Resources | None


def why(
    question: Question, ranked: Sequence[Candidate], place: int, *, chosen: bool = False
) -> RankReasons:
    """Explain the place of the candidate at this index of the ranking: it is compared with the
    first one. The first itself, and one that is `chosen`, is compared with ATen's best or, where it
    is that, with the best other. Raises ModelError."""
    candidate = ranked[place]
    other = 0 if place else rival(ranked)
    if chosen and not candidate.is_extern:
        other = next((i for i, each in enumerate(ranked) if each.is_extern), other)
    baseline = None if other is None else ranked[other]
    difference = None
    if baseline is not None:
        predictor = predictors.loaded(question.model)
        difference = explain(predictor, question.problem, candidate, baseline)
    needs = resources(question.problem, candidate, question.hardware)
    return RankReasons(candidate, baseline, difference, needs)

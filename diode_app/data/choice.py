"""What a model would choose for a problem, among all that Inductor could offer; needs no GPU and no
torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_app import text
from diode_app.data import predictors
from diode_app.data.pages import Row
from diode_app.data.predictors import Model, Ranked
from diode_app.data.problem import in_default
from diode_app.data.problems import short
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import TYPES, Bias
from diode_engine.core.problem import Problem
from diode_engine.models.estimates import Resources, Roofline, resources, roofline

SURE = 0.9  # the confidence that is wanted of timing several kernels (see `ModelChoice.to_time`)


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
class ModelChoice:
    """What a compile takes by one model and why; None where the model has no prediction.

    Times are its predictions in microseconds: for its choice, for ATen's best kernel and for the
    best one of the DEFAULT space. `confidence` is the probability that the choice is within 5 % of
    the best; `to_time` is how many must be timed to be SURE of that. Both are None for a model
    without confidence.
    """

    model: Model
    candidate: Candidate | None
    why: str | None
    time_us: float | None
    aten_us: float | None
    default_us: float | None
    confidence: float | None
    to_time: int | None


@dataclass(frozen=True)
class Answer:
    """`candidates` are offered, `launchable` of them fit the device. `rows` are those for which the
    model has a prediction, the fastest first. `other_us` is what the model predicts for the other
    model's choice."""

    question: Question
    candidates: int
    launchable: int
    picks: tuple[ModelChoice, ...]
    other_us: float | None
    roofline: Roofline | None
    rows: tuple[Row, ...]
    ranked: tuple[Candidate, ...]  # of `rows`


def answer(question: Question) -> Answer:
    """Raises ModelError where a model cannot be loaded."""
    from diode_engine.problems.exhaustive_space import exhaustive_space

    problem, hardware = question.problem, question.hardware
    candidates = exhaustive_space(problem, question.torch)
    roof, base = roofline(problem, candidates, hardware)
    models = [question.model] if question.other is None else [question.model, question.other]
    answers = [predictors.predict(model, problem, candidates, hardware) for model in models]
    space = in_default(problem, candidates, question.torch)
    extern = np.array([c.is_extern for c in candidates], np.bool_)
    picks = tuple(
        _pick(model, ranked, candidates, extern, space)
        for model, ranked in zip(models, answers, strict=True)
    )
    first = answers[0]
    order = first.places[first.ranking.order]
    taken = [a.taken for a in answers]
    rows = []
    for rank, i in enumerate(order.tolist(), 1):
        signs = "".join(str(n) for n, place in enumerate(taken, 1) if place == i)
        kind = "library" if extern[i] else "DEFAULT" if space[i] else ""
        us = [float(a.predicted_us[i]) for a in answers]
        best = float(first.predicted_us[order[0]])
        rows.append(_row(rank, candidates[i], signs, kind, us, us[0] / best - 1, float(base[i])))
    other_us = None
    if len(answers) > 1 and answers[1].taken is not None:
        other_us = _known(float(first.predicted_us[answers[1].taken]))
    return Answer(
        question=question,
        candidates=len(candidates),
        launchable=len(first.places),
        picks=picks,
        other_us=other_us,
        roofline=roof,
        rows=tuple(rows),
        ranked=tuple(candidates[i] for i in order),
    )


def _pick(
    model: Model,
    ranked: Ranked,
    candidates: Sequence[Candidate],
    extern: npt.NDArray[np.bool_],
    default: npt.NDArray[np.bool_],
) -> ModelChoice:
    taken, us = ranked.taken, ranked.predicted_us
    return ModelChoice(
        model=model,
        candidate=None if taken is None else candidates[taken],
        why=ranked.why,
        time_us=None if taken is None else float(us[taken]),
        aten_us=_least(us[extern]),
        default_us=_least(us[default]),
        confidence=ranked.ranking.confidence,
        to_time=ranked.ranking.count_to_reach(SURE),
    )


def _least(us: npt.NDArray[np.float64]) -> float | None:
    known = us[~np.isnan(us)]
    return float(known.min()) if len(known) else None


def _row(
    rank: int,
    candidate: Candidate,
    signs: str,
    kind: str,
    us: Sequence[float],
    behind: float,
    base: float,
) -> Row:
    record: dict[str, Any] = {
        "rank": rank,
        "taken by": signs,
        "candidate": short(candidate),
        "predicted_us": us[0],
        "behind": behind,
        "other_us": _known(us[1]) if len(us) > 1 else None,
        "roofline_us": _known(base),
        "space": kind,
        **candidate.to_dict(),
    }
    cells = {
        "rank": str(rank),
        "taken by": signs,
        "candidate": record["candidate"],
        "predicted_us": text.microseconds(us[0]),
        "behind": text.change(behind),
        "other_us": text.microseconds(record["other_us"]),
        "roofline_us": text.microseconds(record["roofline_us"]),
        "space": kind,
    }
    return Row(candidate.key, cells, record)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


@dataclass(frozen=True)
class RankReasons:
    """Why the model puts one candidate before or behind another. `factors` multiply the predicted
    time, the largest effects first: below 1 they make the candidate faster."""

    candidate: Candidate
    baseline: Candidate | None
    candidate_us: float | None
    baseline_us: float | None
    factors: tuple[tuple[str, float], ...]
    resources: Resources | None


def why(question: Question, ranked: Sequence[Candidate], place: int) -> RankReasons:
    """Explains the place of the candidate at this index of the ranking: it is compared with the
    first one. The first itself is compared with ATen's best or, where it is that, with the second.
    Raises ModelError."""
    from diode_engine.models.explain import explain, rival

    candidate = ranked[place]
    other = 0 if place else rival(ranked)
    baseline = None if other is None else ranked[other]
    found = None
    if baseline is not None:
        predictor = predictors.loaded(question.model)
        found = explain(predictor, question.problem, candidate, baseline)
    factors = () if found is None else tuple(found.factors.items())
    return RankReasons(
        candidate=candidate,
        baseline=baseline,
        candidate_us=None if found is None else found.candidate_us,
        baseline_us=None if found is None else found.baseline_us,
        factors=factors,
        resources=resources(question.problem, candidate, question.hardware),
    )

"""Ranks what Inductor offers for a GEMM by a model of its time, and remembers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from inspect import isgenerator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import triton
from torch._inductor import choices as inductor_choices
from torch._inductor import config
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from diode_engine.core.encoding import CandidateTable
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.problem import Candidate, Op, Problem
from diode_engine.core.resources import fits
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.decision import ANNOTATION, Decision, Pick, Prediction
from diode_engine.inductor.choosing.dynamic import problems_over
from diode_engine.inductor.choosing.memory import key_of
from diode_engine.inductor.choosing.options import Options
from diode_engine.inductor.choosing.stats import Fallback, Stats
from diode_engine.inductor.fusion import epilogue as fusion
from diode_engine.inductor.lowering import layouts
from diode_engine.inductor.lowering.candidates import is_broadcast, problem_of
from diode_engine.inductor.lowering.space import Space, Spaces, Unlike, listed
from diode_engine.models.preference import (
    RULES,
    Mask,
    Microseconds,
    Policy,
    Why,
    best_of_library,
    chosen,
    known,
    taken,
)
from diode_engine.models.ranking import Ranking
from diode_engine.version import __version__

log = logging.getLogger(__name__)

_OF_GRAPH = "_diode"  # an attribute of Inductor's graph
_KEPT = 64  # of these products, whose times are remembered
_SHORTLIST = 8  # candidates of a product with a dynamic size that are judged by other sizes too
_OPS = frozenset(str(op) for op in Op)


_Remembered = list[Prediction]
_OfGraph = tuple["Chooser", Options, dict[Any, _Remembered]]


class Predictor(Protocol):
    """What predicts times. One that has `rank`, as diode_engine.models.predictor.Predictor,
    tells how sure it is, too."""

    @property
    def identity(self) -> str:
        """A hash of all that its predictions depend on."""

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Microseconds:
        """[n] microseconds; NaN where it cannot say."""


class Request(NamedTuple):
    """What Inductor asks its choices: the op, its KernelInputs and templates, kwargs that it
    overrides by template, and its generators of choices by template, in the templates' order."""

    op_name: str
    kernel_inputs: Any
    templates: Sequence[Any]
    overrides: Mapping[str, Mapping[str, Any]] | None
    offers: Mapping[str, Any]


class Stock(Exception):
    """This GEMM is left to stock Inductor."""

    def __init__(self, reason: Fallback, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Chooser:
    """The best `top_k` are kept, of those predicted to take up to `threshold` times the least
    time; one of them alone has to be worth its risk (`models/preference.py`), several are
    benchmarked by Inductor, and of a product with a dynamic size one is kept. A choice
    that is less sure than the option diode_confidence_threshold keeps as many as it takes.

    `likeness` is how much the GPU is like the one that the model was trained on: it scales the
    model's confidence, which was measured there.
    """

    def __init__(
        self,
        predictor: Predictor,
        hardware: Hardware,
        *,
        top_k: int,
        threshold: float,
        enable_fallback: bool,
    ) -> None:
        self.predictor = predictor
        self.hardware = hardware
        trained_on: Hardware = getattr(predictor, "hardware", hardware)
        self.trained_on = trained_on.name
        self.likeness = hardware.likeness(trained_on)
        self.top_k = top_k
        self.threshold = threshold
        self.enable_fallback = enable_fallback
        self.stats = Stats()
        # all that a choice depends on besides the graph and the options
        self.identity = (
            f"diode {__version__}, rules {RULES}, model {predictor.identity}, "
            f"hardware {hardware.key}, top {top_k} within {threshold}, torch {torch.__version__}, "
            f"triton {triton.__version__}"
        )
        self.padding_us: dict[Problem, float] = {}  # what padding has asked
        # by the problems that a dynamic size stands for
        self._over: dict[tuple[tuple[Problem, ...], CandidateTable], Microseconds] = {}
        self._memory: dict[Options, dict[Any, _Remembered]] = {}
        self.spaces = Spaces()

    def asked(self, request: Request) -> bool:
        """Whether this is a GEMM of Diode's for which there is more than ATen to choose."""
        if request.kernel_inputs.device_type != "cuda" or not request.templates:
            return False
        if not (config.max_autotune or config.max_autotune_gemm):
            return False
        if request.op_name not in _OPS:
            self.stats.passed(request.op_name)
            return False
        return True

    def choose(
        self, request: Request, offered: Callable[[str | None], Iterable[Any]], *, rebuild: bool
    ) -> list[Any] | None:
        """The KernelTemplateChoices to render, or None to leave it to stock Inductor.

        `offered` consumes Inductor's generator for a template, or with None all of them. Where
        `rebuild` allows it, choices are made anew from what is remembered instead.
        """
        try:
            return self._choose(request, offered, rebuild)
        except Stock as stock:
            self.fall_back(stock.reason, str(stock))
        except Exception as error:  # noqa: BLE001
            self.failed("the choice failed", error)
        return None

    def again(self, request: Request) -> list[Any] | None:
        """What `choose` gives where it may rebuild, for a product that was met before and is not
        the first of its graph; None for any other. Most products of a model are such, and what
        holds for a whole graph (the options, and but for fast_autotune that Diode is asked) is
        not looked up again."""
        of_graph: _OfGraph | None = getattr(V.graph, _OF_GRAPH, None)
        if of_graph is None or of_graph[0] is not self:
            return None
        _, options, memory = of_graph
        if options.fast and not self.asked(request):  # left to the default mode
            return None
        try:
            return self._remembered(request, _key(request, options), options, memory)
        except Exception:  # `choose` runs into it too, and says so
            if not self.enable_fallback:
                raise
            return None

    def failed(self, what: str, error: Exception) -> None:
        """Notes that a part of Diode has raised and stock Inductor goes on; raises it again where
        there is no fallback."""
        if not self.enable_fallback:
            raise error
        log.debug("%s", what, exc_info=error)
        self.fall_back(Fallback.ERROR, f"{what}, {type(error).__name__}: {error}")

    def fall_back(self, reason: Fallback, why: str) -> None:
        if self.stats.fallback(reason):
            log.warning(
                "Diode leaves GEMMs to stock Inductor: %s (%s; said once, counted in "
                "diode_engine.get_stats()).",
                why,
                reason,
            )

    def taken_us(self, problem: Problem, candidates: CandidateTable) -> float:
        """The predicted time of the one that would be taken; NaN where the model knows none."""
        ranking = self._ranking(problem, candidates)
        if not len(ranking.order):
            return np.nan
        return float(ranking.predicted_us[taken(problem, candidates, ranking)[0]])

    def _choose(
        self, request: Request, offered: Callable[[str | None], Iterable[Any]], rebuild: bool
    ) -> list[Any]:
        op_name, kernel_inputs = request.op_name, request.kernel_inputs
        device = kernel_inputs.device()
        here = detect(device.index)
        if here is not self.hardware and here != self.hardware:
            raise Stock(
                Fallback.OTHER_DEVICE,
                f"the model was loaded for {self.hardware.name}, this is for {device}",
            )
        options, memory = self._of_graph()
        key = _key(request, options) if rebuild else None
        remembered = self._remembered(request, key, options, memory)
        if remembered is not None:
            return remembered
        sizes = (*kernel_inputs.shapes_symbolic(), *kernel_inputs.strides_symbolic())
        if key is None and free_unbacked_symbols([x for each in sizes for x in each]):
            raise Stock(Fallback.NO_HINT, "nothing is known about a dynamic size")
        problem = problem_of(kernel_inputs, op_name)
        if problem is None:
            raise Stock(
                Fallback.UNSUPPORTED,
                f"{op_name} of {kernel_inputs.dtypes()} with sizes and strides {sizes} is no "
                "problem that Diode knows",
            )
        problems: tuple[Problem, ...] = (problem,)
        if key is None:
            problems = problems_over(kernel_inputs, op_name, problem)
        epilogue = fusion.current_epilogue() if options.fusion else None
        saved = [epilogue.saved_us(p, self.hardware) if epilogue else 0.0 for p in problems]
        decide = partial(self._decide, problems, saved, is_broadcast(kernel_inputs), options)
        if not rebuild:
            choices = list(offered(None))
            decision = decide(listed(choices))
            by_params = {id(choice.params): choice for choice in choices}
            kept = [by_params[id(pick.params)] for pick in decision.picks]
            return _annotated(kept, self._predictions(decision, remembered=False))
        uids = tuple(request.offers)
        find = partial(
            self.spaces.find, op_name, kernel_inputs, uids,
            (problem.M, problem.N, problem.K), cache(offered),
        )  # fmt: skip
        overridden = [uid for uid, given in (request.overrides or {}).items() if given]
        try:
            decision = decide(find(list_from=overridden))
        except Unlike as unlike:
            log.debug("Inductor lists all that it offers for %s: %s.", problem, unlike)
            decision = decide(find(list_from=uids))
        # whether some templates are offered depends on options that are not in the key
        if key is not None and not any(template_of(pick.uid).option for pick in decision.picks):
            memory[key] = self._predictions(decision, remembered=True)
        return _made(self._predictions(decision, remembered=False), request)

    def _predictions(self, decision: Decision, *, remembered: bool) -> list[Prediction]:
        return [Prediction(pick, decision, self, remembered) for pick in decision.picks]

    def _remembered(
        self, request: Request, key: Any, options: Options, memory: Mapping[Any, _Remembered]
    ) -> list[Any] | None:
        known = memory.get(key) if key is not None and options.cache else None
        if known is None:
            return None
        made = _made(known, request)
        self.stats.count("cache_hits")
        return made

    def _of_graph(self) -> tuple[Options, dict[Any, _Remembered]]:
        """The options of the graph that is being lowered, read once (a read takes a microsecond),
        and what is remembered of choices under them. Raises Stock where Inductor's search is not
        as it was."""
        graph: Any = V.graph
        known: _OfGraph | None = getattr(graph, _OF_GRAPH, None)
        if known is None or known[0] is not self:
            why = search.altered()
            if why is not None:
                raise Stock(Fallback.ALTERED_SEARCH, why)
            options = Options.current()
            known = self, options, self._memory.setdefault(options, {})
            setattr(graph, _OF_GRAPH, known)
        return known[1:]

    def _decide(
        self,
        problems: Sequence[Problem],
        saved_us: Sequence[float],
        broadcast: bool,
        options: Options,
        space: Space,
    ) -> Decision:
        """The kernels to keep for the first of the problems, which is the one by its hints, with
        the others in mind; `saved_us` is what fusing the epilogue saves for each of them,
        `broadcast` whether one matrix stands for all of a batch, of which no model knows."""
        candidates, problem = space.candidates, problems[0]
        if not len(candidates):
            return Decision(
                tuple(problems), (), None, self.top_k, self.threshold, Why.FASTEST, None, True,
                (0.0,), False, 0,
            )  # fmt: skip
        ranking = self._ranking(problem, candidates)
        if not len(ranking.order):
            raise Stock(Fallback.NO_PREDICTION, f"the model has no prediction for {problem}")
        confidence = ranking.confidence
        policy = Policy.of(problem, candidates, confidence)
        if broadcast:
            policy = replace(policy, sure=False)
        if confidence is not None:
            confidence *= self.likeness
        keep, threshold = options.top_k or self.top_k, self.threshold
        if confidence is not None and not confidence >= options.confidence:
            if options.fallback:
                raise Stock(
                    Fallback.LOW_CONFIDENCE,
                    f"the model is {confidence:.0%} sure of {problem}, which is less than the "
                    f"{options.confidence:.0%} of diode_confidence_threshold",
                )
            enough = ranking.k(min(1.0, options.confidence / max(self.likeness, 1e-9)))
            keep, threshold = max(keep, enough or 0), np.inf
        # what is fastest for the hint, as a benchmark would find, may not be elsewhere
        if options.deterministic or len(problems) > 1:
            keep = 1
        columns = candidates.columns
        library = policy.library
        fuses = [template_of(uid).fuses_epilogue for uid in columns.templates]
        fused = np.array(fuses)[columns.template]
        alone = self._times(problems, candidates, ranking, library)
        choose = partial(chosen, policy=policy, keep=keep, threshold=threshold)
        cost = alone + fusion.charged_us(saved_us, fused)
        order, why = choose(cost)
        if not order:
            raise Stock(
                Fallback.NO_PREDICTION, f"the model knows no kernel for all sizes of {problem}"
            )
        swayed = any(saved_us) and choose(alone)[0] != order

        def pick(i: int) -> Pick:
            return Pick(space.uid(i), space.params(i), candidates[i], tuple(cost[:, i].tolist()))

        picks = [pick(i) for i in order]
        best = next((p for p in picks if p.candidate.is_extern), None)
        if best is None and library.any():
            best = pick(best_of_library(cost[0], library))
            if options.other_backends:  # with a kernel of theirs there are several
                picks.append(best)
        return Decision(
            tuple(problems), tuple(picks), best, keep, threshold, why, confidence,
            policy.sure, tuple(saved_us), swayed, len(candidates),
        )  # fmt: skip

    def _times(
        self,
        problems: Sequence[Problem],
        candidates: CandidateTable,
        ranking: Ranking,
        library: Mask,
    ) -> Microseconds:
        """[problems, n] predicted times of the candidates, of one problem as it was ranked. Of
        several problems only those are asked about that are among the fastest for the first,
        the middle or the last one, and the library's; the others are NaN."""
        if len(problems) == 1:
            return ranking.predicted_us[None]
        key = tuple(problems), candidates
        if (remembered := self._over.get(key)) is not None:
            return remembered
        asked = library.copy()
        asked[ranking.order[:_SHORTLIST]] = True
        for problem in {problems[len(problems) // 2], problems[-1]}:
            asked[self._ranking(problem, candidates).order[:_SHORTLIST]] = True
        places, some = np.flatnonzero(asked), candidates.take(asked)
        times = np.full((len(problems), len(candidates)), np.nan)
        for row, problem in zip(times, problems, strict=True):
            row[places] = self.predictor.predict_us(problem, some)
            row[places[~fits(problem, some, self.hardware)]] = np.nan
        if len(self._over) >= _KEPT:
            self._over.clear()
        self._over[key] = times
        return times

    def _ranking(self, problem: Problem, candidates: Sequence[Candidate]) -> Ranking:
        """Of those that can be launched; what is unknown or impossible is NaN, and not in the
        order."""
        table = CandidateTable.of(candidates)
        fit = fits(problem, table, self.hardware)
        places = np.flatnonzero(fit)
        self.stats.count("configs_considered", len(table))
        self.stats.count("configs_filtered", len(table) - len(places))
        asked = table.take(fit)
        if not len(asked):
            return Ranking(places, np.full(len(candidates), np.nan), None)
        rank = getattr(self.predictor, "rank", None)
        if rank is None:
            us = self.predictor.predict_us(problem, asked)
            ranking = Ranking(np.argsort(us, kind="stable"), us, None)
        else:
            ranking = rank(problem, asked)
        us = np.full(len(candidates), np.nan)
        us[places] = ranking.predicted_us
        order = places[ranking.order]
        return Ranking(order[known(us[order])], us, ranking.reaches)


def _key(request: Request, options: Options) -> Any:
    """What the choice follows from; None where that is not known for good."""
    epilogue = fusion.current_epilogue() if options.fusion else None
    op_name, kernel_inputs, _, overrides, offers = request
    return key_of(op_name, kernel_inputs, tuple(offers), overrides, epilogue)


def _made(predictions: Sequence[Prediction], request: Request) -> list[Any]:
    """The KernelTemplateChoices of what was picked, and of the library's kernel beside a template
    whose operands will lie otherwise: `final_choice` takes that one then."""
    found = dict(zip(request.offers, request.templates, strict=True))
    if len(predictions) == 1 and not predictions[0].pick.candidate.is_extern:
        only = predictions[0]
        library = only.decision.library
        if library is not None and layouts.will_move(request.kernel_inputs.nodes()):
            predictions = [only, replace(only, pick=library)]
    made = [_rebuilt(p.pick, found[p.pick.uid], request) for p in predictions]
    return _annotated(made, predictions)


def _annotated(choices: list[Any], predictions: Sequence[Prediction]) -> list[Any]:
    for choice, prediction in zip(choices, predictions, strict=True):
        choice.annotations[ANNOTATION] = prediction
    return choices


def _rebuilt(pick: Pick, template: Any, request: Request) -> Any:
    """What the template's generator, of InductorChoices.get_ktc, would yield for the pick, without
    all the others. What it was made with took Inductor most of the time, and is taken over."""
    op_name, kernel_inputs, offer = request.op_name, request.kernel_inputs, request.offers[pick.uid]
    given = offer.gi_frame.f_locals if isgenerator(offer) and offer.gi_frame else {}
    try:
        made_with = given["extra_kwargs"], given["layout"], given["inputs"]
    except KeyError:
        heuristic = inductor_choices.get_template_heuristic(  # type: ignore[attr-defined]
            template.uid, kernel_inputs.device_type, op_name
        )
        made_with = (
            heuristic.get_extra_kwargs(kernel_inputs, op_name),
            kernel_inputs.output_layout(),
            heuristic.adjust_kernel_inputs(kernel_inputs, op_name),
        )
    return KernelTemplateChoice(template, pick.params, *made_with)


def current() -> Chooser | None:
    """The chooser behind this thread's choices; None where they are not Diode's."""
    # `V.choices` itself only passes on what is asked of it
    handler = getattr(getattr(V.choices, "get_ktc", None), "__self__", None)
    return getattr(handler, "_diode", None)

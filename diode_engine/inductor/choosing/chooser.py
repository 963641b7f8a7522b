"""Chooses the kernels of a product that Inductor asks for, and remembers the choices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import triton
from torch._inductor import config, utils
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from diode_engine.choosing.outcomes import LeftToStock, Outcomes
from diode_engine.choosing.policy import RULES
from diode_engine.choosing.stats import Fallback
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.operand import Bias
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.choosing.compile_options import CompileOptions
from diode_engine.inductor.choosing.decider import Decider, Taken
from diode_engine.inductor.choosing.decision import ChosenKernel, Decision
from diode_engine.inductor.choosing.dynamic import (
    aligned_when_compiled,
    may_exceed_32_bits,
    problems_over,
)
from diode_engine.inductor.choosing.flex_attention import FlexChooser
from diode_engine.inductor.choosing.memory import key_of
from diode_engine.inductor.choosing.predictor import TimePredictor
from diode_engine.inductor.choosing.request import Request
from diode_engine.inductor.choosing.template_choices import annotated, made
from diode_engine.inductor.choosing.times import Times
from diode_engine.inductor.fusion import epilogue as fusion
from diode_engine.inductor.guard import Report, do_nothing, guard
from diode_engine.inductor.lowering.candidates import attributes_from, is_broadcast, problem_of
from diode_engine.inductor.lowering.space import (
    NotOffered,
    OfferedSpace,
    Spaces,
    listed,
    search_space,
)
from diode_engine.version import __version__

log = logging.getLogger(__name__)

_GRAPH_ATTRIBUTE = "_diode"  # an attribute of Inductor's graph


# The values of Inductor's options that decide what it offers (see outside_graph.py).
OfferingOptions = tuple[Any, ...]
_Remembered = list[ChosenKernel]
_GraphChoices = tuple["Chooser", CompileOptions, dict[Any, _Remembered]]


def _report(chooser: Chooser, *_: Any, **__: Any) -> Report:
    return chooser.outcomes.failed


class Chooser:
    """Chooses among what Inductor offers for the products of one GPU, by the `options`."""

    def __init__(
        self, predictor: TimePredictor, hardware: Hardware, options: ChoiceOptions
    ) -> None:
        self.predictor = predictor
        self.hardware = hardware
        trained_on: Hardware = getattr(predictor, "hardware", hardware)
        self.trained_on = trained_on.name
        self.likeness = hardware.likeness(trained_on)
        self.outcomes = Outcomes(enable_fallback=options.enable_fallback)
        self.flex = FlexChooser(hardware, self.outcomes)
        top_k, threshold = options.top_k_configs, options.performance_threshold
        self.decider = Decider(
            Times(predictor, hardware, self.outcomes.stats, self.likeness),
            top_k=top_k,
            threshold=threshold,
        )
        # Everything that a choice depends on, besides the graph and the options of the compile.
        self.identity = (
            f"diode {__version__}, rules {RULES}, model {predictor.identity}, "
            f"hardware {hardware.key}, top {top_k} within {threshold}, flex {self.flex.identity}, "
            f"torch {torch.__version__}, triton {triton.__version__}"
        )
        # For products that are not in a graph (see outside_graph.py).
        self.taken: dict[tuple[Problem, OfferingOptions], Taken | None] = {}
        self._memory: dict[CompileOptions, dict[Any, _Remembered]] = {}
        self.spaces = Spaces()

    def knows(self, op_name: str) -> bool:
        """Whether the model was trained on timings of this op. A model that does not say counts as
        trained on all of Diode's ops."""
        ops = getattr(self.predictor, "ops", OPERATORS)
        return op_name in OPERATORS and op_name in ops

    def asked(self, request: Request) -> bool:
        """Whether Inductor asks for a choice: under max-autotune, for a product on a GPU with
        templates to choose from."""
        if request.kernel_inputs.device_type != "cuda" or not request.templates:
            return False
        return bool(config.max_autotune or config.max_autotune_gemm)

    def again(self, request: Request) -> list[Any] | None:
        """What `choose` returns with `rebuild`, if the choice is remembered and the product is not
        the first one of its graph; else None. This is the case of most products of a program, so it
        is fast: what is the same for a whole graph is not looked up again (the options, and whether
        Diode is to choose, except under fast_autotune)."""
        graph = V.graph  # each look-up takes half a microsecond
        of_graph: _GraphChoices | None = getattr(graph, _GRAPH_ATTRIBUTE, None)
        if of_graph is None or of_graph[0] is not self:
            return None
        _, options, memory = of_graph
        if options.fast and not self.asked(request):  # left to the default mode
            return None
        try:
            return self._remembered(request, _key(request, options, graph), options, memory)
        except Exception:  # `choose` will meet and report it too
            if not self.outcomes.enable_fallback:
                raise
            return None

    @guard("the choice failed", stock=do_nothing, report=_report)
    def choose(
        self, request: Request, offered: Callable[[str | None], Iterable[Any]], *, rebuild: bool
    ) -> list[Any] | None:
        """The KernelTemplateChoices to render, or None where Diode makes no choice.

        `offered` gives Inductor's generator for a template, or with None what all of them make.
        With `rebuild`, choices may be made from what is remembered instead.
        """
        op_name, kernel_inputs = request.op_name, request.kernel_inputs
        self._check_device(kernel_inputs)
        options, memory = self._of_graph()
        key = _key(request, options, V.graph) if rebuild else None
        remembered = self._remembered(request, key, options, memory)
        if remembered is not None:
            return remembered
        problem, decide = self._decide(
            op_name, kernel_inputs, request.overrides, options, dynamic=key is None
        )
        with search_space("EXHAUSTIVE"):  # the generators read it when they are iterated
            if not rebuild:
                choices = [c for c in offered(None) if _computes(c.template.uid, problem)]
                decision = decide(listed(choices))
                by_params = {id(choice.params): choice for choice in choices}
                kept = [by_params[id(pick.params)] for pick in decision.picks]
                return annotated(kept, self._predictions(decision, remembered=False))
            decision, lists = self._decision(request, problem, decide, offered)
        # Whether templates with an option are offered depends on that option, which is not in the
        # key.
        if key is not None and not any(template_of(pick.uid).option for pick in decision.picks):
            memory[key] = self._predictions(decision, remembered=True)
        request = request._replace(offers={**request.offers, **lists})
        return made(self._predictions(decision, remembered=False), request)

    def _decision(
        self,
        request: Request,
        problem: Problem,
        decide: Callable[[OfferedSpace], Decision],
        offered: Callable[[str], Iterable[Any]],
    ) -> tuple[Decision, dict[str, list[Any]]]:
        """The decision, and the choices that Inductor has listed for it, by template. To list them
        is slow, so Inductor lists those of a template only where that is necessary."""
        uids = tuple(uid for uid in request.offers if _computes(uid, problem))
        if not uids:
            raise LeftToStock(Fallback.UNSUPPORTED, f"no template that is offered is for {problem}")
        lists: dict[str, list[Any]] = {}

        def list_of(uid: str) -> list[Any]:
            if uid not in lists:
                lists[uid] = list(offered(uid))
            return lists[uid]

        find = partial(
            self.spaces.find, request.op_name, request.kernel_inputs, uids,
            (problem.M, problem.N, problem.K), list_of,
        )  # fmt: skip
        overridden = [uid for uid, given in (request.overrides or {}).items() if given]
        try:
            decision = decide(find(list_from=overridden))
        except NotOffered as error:
            log.debug("Inductor lists all that it offers for %s: %s.", problem, error)
            decision = decide(find(list_from=uids))
        return decision, lists

    def kept_of(
        self,
        op_name: str,
        kernel_inputs: Any,
        overrides: Mapping[str, Mapping[str, Any]] | None,
        offered: Sequence[Any],
    ) -> list[ChosenKernel]:
        """The choices to keep, for an op whose choices do not come through the hook. `overrides`
        are as in `problem_of`, `offered` are choices with a template and params, as
        KernelTemplateChoices have them. Raises LeftToStock where none is chosen."""
        self._check_device(kernel_inputs)
        options, _ = self._of_graph()
        _, decide = self._decide(op_name, kernel_inputs, overrides, options, dynamic=True)
        return self._predictions(decide(listed(offered)), remembered=False)

    def _check_device(self, kernel_inputs: Any) -> None:
        device = kernel_inputs.device()
        here = detect(device.index)
        if here is not self.hardware and here != self.hardware:
            raise LeftToStock(
                Fallback.OTHER_DEVICE,
                f"the model was loaded for {self.hardware.name}, this is for {device}",
            )

    def _decide(
        self,
        op_name: str,
        kernel_inputs: Any,
        overrides: Mapping[str, Mapping[str, Any]] | None,
        options: CompileOptions,
        *,
        dynamic: bool,
    ) -> tuple[Problem, Callable[[OfferedSpace], Decision]]:
        """The problem with the hints of its sizes, and a function that makes the decision on what
        is offered for it. `dynamic` says whether a size may be a symbol. Raises LeftToStock where
        Diode has no such problem, or a size has no hint."""
        sizes = (*kernel_inputs.shapes_symbolic(), *kernel_inputs.strides_symbolic())
        if dynamic and free_unbacked_symbols([x for each in sizes for x in each]):
            raise LeftToStock(Fallback.NO_HINT, "nothing is known about a dynamic size")
        problem = problem_of(kernel_inputs, op_name, overrides)
        if problem is None:
            raise LeftToStock(
                Fallback.UNSUPPORTED,
                f"{op_name} of {kernel_inputs.dtypes()} with sizes and strides {sizes} is no "
                "problem that Diode knows",
            )
        if problem.bias is Bias.SCALAR:  # plain's call of the library reads it as it is
            raise LeftToStock(
                Fallback.NO_PREDICTION, f"no kernel was timed with the bias of {problem}"
            )
        problems: tuple[Problem, ...] = (problem,)
        untimed, too_large = is_broadcast(kernel_inputs, op_name), False
        if dynamic:
            too_large = may_exceed_32_bits(kernel_inputs)
            attributes = attributes_from(op_name, overrides)
            problems = problems_over(kernel_inputs, op_name, problem, attributes)
            aligned = aligned_when_compiled(kernel_inputs, op_name)
            untimed = untimed or too_large or not aligned
        epilogue = fusion.current_epilogue(V.graph) if options.fusion else None
        saved = [epilogue.saved_us(p, self.hardware) if epilogue else 0.0 for p in problems]
        decide = partial(self.decider.decide, problems, saved, untimed, options)
        return problem, partial(_by_library, decide, options.fast) if too_large else decide

    def _predictions(self, decision: Decision, *, remembered: bool) -> list[ChosenKernel]:
        return [ChosenKernel(pick, decision, self.outcomes, remembered) for pick in decision.picks]

    def _remembered(
        self, request: Request, key: Any, options: CompileOptions, memory: Mapping[Any, _Remembered]
    ) -> list[Any] | None:
        known = memory.get(key) if key is not None and options.cache else None
        if known is None:
            return None
        choices = made(known, request)
        self.outcomes.stats.count("cache_hits")
        return choices

    def _of_graph(self) -> tuple[CompileOptions, dict[Any, _Remembered]]:
        """The options of the graph that is being lowered, read once (a read takes a microsecond),
        and the choices that are remembered under them. Raises LeftToStock where Inductor's search
        was changed."""
        graph: Any = V.graph
        known: _GraphChoices | None = getattr(graph, _GRAPH_ATTRIBUTE, None)
        if known is None or known[0] is not self:
            why = search.altered()
            if why is not None:
                raise LeftToStock(Fallback.ALTERED_SEARCH, why)
            options = CompileOptions.current()
            known = self, options, self._memory.setdefault(options, {})
            setattr(graph, _GRAPH_ATTRIBUTE, known)
        return known[1:]


def _by_library(
    decide: Callable[[OfferedSpace], Decision], fast: bool, space: OfferedSpace
) -> Decision:
    """The decision for a library's kernel. It is for none at all where an op asks for Triton's
    kernels alone after the library's, as addmm does, since to render one sets the guard. Raises
    LeftToStock where there is no library's kernel and the default mode (`fast`) has one."""
    if any(candidate.is_extern for candidate in space.candidates):
        decision = decide(space)
        if all(pick.candidate.is_extern for pick in decision.picks):
            return decision
    elif utils.use_aten_gemm_kernels():
        return decide(listed(()))
    if fast:
        raise LeftToStock(
            Fallback.UNSUPPORTED,
            "a dynamic size may be so large that Triton's kernels cannot index the tensor",
        )
    return decide(space)


def _computes(uid: str, problem: Problem) -> bool:
    """Whether the template's kernels compute the problem. (torch 2.10 offers the template mm also
    for products with scales of blocks. These must be multiplied inside the loop over K, and mm
    multiplies after it.)"""
    return template_of(uid).space_for(problem.op.name).offered(problem)


def _key(request: Request, options: CompileOptions, graph: Any) -> Any:
    """Everything that the choice depends on, as a key; None where the choice must not be
    remembered."""
    epilogue = fusion.current_epilogue(graph) if options.fusion else None
    op_name, kernel_inputs, _, overrides, offers = request
    return key_of(op_name, kernel_inputs, tuple(offers), overrides, epilogue)

"""Chooses the kernels of a product that Inductor asks for, and remembers the choices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import triton
from torch._inductor import config, utils
from torch._inductor.virtualized import V

from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.chooser import Chooser, TimePredictor
from diode_engine.choosing.frozen import FrozenChoices
from diode_engine.choosing.frozen_kernel import FrozenKernel
from diode_engine.choosing.invariant import InvariantChooser, refusal
from diode_engine.choosing.outcomes import LeftToStock, Outcomes
from diode_engine.choosing.policy import RULES, Comparison
from diode_engine.choosing.prediction import Prediction
from diode_engine.choosing.stats import Fallback
from diode_engine.choosing.summation import OPERATORS as INVARIANT_OPERATORS
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.errors import DiodeError
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.choosing.chosen_kernels import (
    ChosenKernel,
    annotate,
    make_template_choices,
)
from diode_engine.inductor.choosing.compile_options import (
    CompileOptions,
    frozen_choices,
    has_frozen_choices,
)
from diode_engine.inductor.choosing.flex_attention import FlexChooser
from diode_engine.inductor.choosing.library_algorithms import AlgorithmChooser
from diode_engine.inductor.choosing.one_order import choose_in_space, choose_of_one_order
from diode_engine.inductor.choosing.product import Overrides, Product, Request
from diode_engine.inductor.guard import Report, do_nothing, guard
from diode_engine.inductor.lowering.space import (
    NotOffered,
    OfferedSpace,
    Spaces,
    search_space,
    space_of_choices,
)
from diode_engine.inductor.torch_internals import DEVICE_TYPE
from diode_engine.version import __version__

log = logging.getLogger(__name__)

_GRAPH_ATTRIBUTE = "_diode"  # an attribute of Inductor's graph

_Memory = dict[Any, list[ChosenKernel]]
_GraphChoices = tuple["ProductChooser", CompileOptions, _Memory]


def _report(chooser: ProductChooser, *_: Any, **__: Any) -> Report:
    return chooser.outcomes.report_failure


class ProductChooser:
    """Chooses among what Inductor offers for the products of one GPU, by the `options`. `load`
    returns the model; it is called when a choice, or a cache key, first needs it."""

    def __init__(
        self, load: Callable[[], TimePredictor], hardware: Hardware, options: ChoiceOptions
    ) -> None:
        self._load = load
        self.hardware = hardware
        self._options = options
        self.outcomes = Outcomes(
            enable_fallback=options.enable_fallback, is_frozen=has_frozen_choices
        )
        self.flex = FlexChooser(hardware, self.outcomes)
        self.algorithms = AlgorithmChooser(hardware, self.outcomes)
        # For products that are not in a graph (see outside_graph.py), by `offering_options`.
        self.outside: dict[tuple[Problem, str], Choice | None] = {}
        self._memory: dict[CompileOptions, _Memory] = {}
        self.spaces = Spaces()

    @cached_property
    def predictor(self) -> TimePredictor:
        """The model. Raises what loading it raises."""
        return self._load()

    @cached_property
    def chooser(self) -> Chooser:
        """Chooses by the model."""
        options = self._options
        return Chooser(
            self.predictor,
            self.hardware,
            keep=options.top_k_configs,
            threshold=options.performance_threshold,
        )

    @cached_property
    def invariant(self) -> InvariantChooser:
        """Chooses by the model where results must not depend on the batch."""
        return InvariantChooser(self.chooser, torch.__version__, triton.__version__)

    @property
    def model(self) -> str:
        """The model's identity, "" where there is none, or none was needed yet."""
        return self.predictor.identity if "predictor" in vars(self) else ""

    @property
    def identity_parts(self) -> dict[str, str]:
        """Everything that a choice depends on, besides the graph and the options of the compile.
        Frozen choices do not depend on the model and the rules. Raises FrozenChoicesError where
        they cannot be read."""
        parts = {"diode": __version__}
        if (frozen := frozen_choices()) is not None:
            parts["frozen"] = frozen.key
        else:
            try:
                model, orders = self.predictor.identity, self.invariant.identity
            except DiodeError:
                model = orders = "none"
            options = self._options
            top = f"{options.top_k_configs} within {options.performance_threshold}"
            parts |= {
                "rules": RULES, "orders": orders, "model": model, "top": top,
                "flex": self.flex.identity, "algorithms": self.algorithms.identity,
            }  # fmt: skip
        versions = {"torch": torch.__version__, "triton": triton.__version__}
        return {**parts, "hardware": self.hardware.key, **versions}

    @property
    def identity(self) -> str:
        """These parts as one text, for Inductor's cache keys."""
        return ", ".join(f"{name} {value}" for name, value in self.identity_parts.items())

    def knows(self, op_name: str) -> bool:
        """Return whether the model was trained on timings of this op. A model that does not say
        counts as trained on all of Diode's ops. Frozen choices have all of them."""
        if op_name not in OPERATORS or has_frozen_choices():
            return op_name in OPERATORS
        return op_name in getattr(self.predictor, "ops", OPERATORS)

    def should_choose(self, request: Request) -> bool:
        """Return whether Inductor asks for a choice: under max-autotune, for a product on a GPU
        with templates to choose from."""
        if request.kernel_inputs.device_type != DEVICE_TYPE or not request.offers:
            return False
        return bool(config.max_autotune or config.max_autotune_gemm)

    def remembered_choices(self, request: Request) -> list[Any] | None:
        """Return what `choose` returns with `rebuild`, if the choice is remembered and the product
        is not the first one of its graph; else None.

        This is the case of most products of a program, so it is fast: what is the same for a whole
        graph is not looked up again (the options, and whether Diode is to choose, except under
        fast_autotune).
        """
        of_graph: _GraphChoices | None = getattr(V.graph, _GRAPH_ATTRIBUTE, None)
        if of_graph is None or of_graph[0] is not self:
            return None
        _, options, memory = of_graph
        if options.fast and not self.should_choose(request):  # left to the default mode
            return None
        try:
            return self._remembered(request, request.key(fusion=options.fusion), options, memory)
        except Exception:  # `choose` will meet and report it too
            if not self.outcomes.enable_fallback:
                raise
            return None

    @guard("the choice failed", stock=do_nothing, report=_report)
    def choose(
        self, request: Request, offered: Callable[[], Iterable[Any]], *, rebuild: bool
    ) -> list[Any] | None:
        """Return the KernelTemplateChoices to render, or None where Diode makes no choice.

        `offered` returns the choices of all templates. With `rebuild`, choices may be made from the
        request's offers, and from what is remembered, instead.
        """
        options, memory = self._options_and_memory(request.kernel_inputs)
        key = request.key(fusion=options.fusion) if rebuild else None
        remembered = self._remembered(request, key, options, memory)
        if remembered is not None:
            return remembered
        product = Product.read(
            request, self.hardware, is_dynamic=key is None, fusion=options.fusion
        )
        with search_space("EXHAUSTIVE"):  # the generators read it when they are iterated
            if options.invariant:
                source = self._invariant_source(product, options, rebuild=rebuild)
                kernels = choose_of_one_order(request, product, source, self.spaces, self.outcomes)
            elif not rebuild:
                problem = product.problems[0]
                choices = [c for c in offered() if _computes(c.template.uid, problem)]
                kernels = self._choose_kernels(product, options, space_of_choices(choices))
                by_params = {id(choice.params): choice for choice in choices}
                return annotate([by_params[id(kernel.params)] for kernel in kernels], kernels)
            else:
                kernels = self._choose_offered(request, product, options)
        # Whether a template with an option of its own is offered depends on more than the key.
        if key is not None and not any(template_of(kernel.uid).option for kernel in kernels):
            memory[key] = [kernel.as_remembered() for kernel in kernels]
        return make_template_choices(kernels, request)

    def choose_listed(
        self, op_name: str, kernel_inputs: Any, overrides: Overrides, offered: Sequence[Any]
    ) -> list[ChosenKernel]:
        """Return the chosen kernels for an op whose choices do not come through the hook.
        `overrides` are as in `problem_of`, `offered` are choices with a template and params, as
        KernelTemplateChoices have them. Raises LeftToStock where none is chosen."""
        options, _ = self._options_and_memory(kernel_inputs)
        if options.invariant and op_name not in INVARIANT_OPERATORS:
            raise refusal(f"the option does not cover {op_name}")
        request = Request(op_name, kernel_inputs, overrides, {})
        product = Product.read(request, self.hardware, is_dynamic=True, fusion=options.fusion)
        space = space_of_choices(offered)
        if options.invariant:
            source = self._invariant_source(product, options)
            return choose_in_space(product, source, space, self.outcomes)
        return self._choose_kernels(product, options, space)

    def _invariant_source(
        self, product: Product, options: CompileOptions, *, rebuild: bool = True
    ) -> InvariantChooser | FrozenChoices:
        """Return what chooses where results must not depend on the batch. Raises LeftToStock where
        nothing may, and FrozenChoicesError where the frozen kernel's order is not proven. `rebuild`
        is as in `choose`."""
        if not rebuild or options.other_backends:
            raise refusal("others have replaced or added to what Inductor offers")
        if options.frozen is None:
            return self.invariant
        kernel = FrozenKernel.find(options.frozen, product.form)
        kernel.check_order(self.hardware, torch.__version__, triton.__version__)
        return options.frozen

    def decide(
        self, what: str, problem: Problem, by_model: Callable[[], bool | None],
        dynamic: Collection[str] = (),
    ) -> bool | None:  # fmt: skip
        """Return a decision about a product before it is lowered, named `what`: the frozen one, or
        that of `by_model`, where None is undecided. `dynamic` names the product's dynamic sizes.
        Raises FrozenChoicesError where the file of frozen choices has no such decision."""
        if (frozen := frozen_choices()) is not None:
            return frozen.decide(what, problem, dynamic)
        decision = by_model()
        self.outcomes.stats.record_decision(what, problem, bool(decision))
        return decision

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        """Return the prediction for the candidates, and count those that the GPU can launch."""
        prediction = self.chooser.predict(problem, candidates)
        left_out = len(candidates) - (prediction.launchable or 0)
        self.outcomes.stats.count("configs_considered", len(candidates))
        self.outcomes.stats.count("configs_filtered", left_out)
        return prediction

    def _options_and_memory(self, kernel_inputs: Any) -> tuple[CompileOptions, _Memory]:
        """Return the options of the graph that is being lowered, read once (a read takes a
        microsecond), and the choices that are remembered under them. Raises LeftToStock for another
        GPU than the model's, and where the options or a changed search leave Diode no choice."""
        device = kernel_inputs.device()
        here = detect(device.index)
        if here is not self.hardware and here != self.hardware:
            raise LeftToStock(
                Fallback.OTHER_DEVICE,
                f"the model was loaded for {self.hardware.name}, this is for {device}",
            )
        graph: Any = V.graph
        known: _GraphChoices | None = getattr(graph, _GRAPH_ATTRIBUTE, None)
        if known is None or known[0] is not self:
            options = CompileOptions.current()
            if options.frozen is not None:  # nothing is searched
                options.frozen.check(here.name, torch.__version__, triton.__version__)
            elif (why := search.find_alteration()) is not None:
                raise LeftToStock(Fallback.ALTERED_SEARCH, why)
            known = self, options, self._memory.setdefault(options, {})
            setattr(graph, _GRAPH_ATTRIBUTE, known)
        return known[1:]

    def _remembered(
        self,
        request: Request,
        key: Any,
        options: CompileOptions,
        memory: Mapping[Any, list[ChosenKernel]],
    ) -> list[Any] | None:
        known = memory.get(key) if key is not None and options.cache else None
        if known is None:
            return None
        choices = make_template_choices(known, request)
        self.outcomes.stats.count("cache_hits")
        return choices

    def _choose_offered(
        self, request: Request, product: Product, options: CompileOptions
    ) -> list[ChosenKernel]:
        """Return the kernels. To list choices is slow, so Inductor lists those of a template only
        where that is necessary; the request then has the list."""
        problem, offers = product.problems[0], request.offers
        uids = tuple(uid for uid in offers if _computes(uid, problem))
        if not uids:
            raise LeftToStock(Fallback.UNSUPPORTED, f"no template that is offered is for {problem}")

        def list_of(uid: str) -> list[Any]:
            offers[uid] = list(offers[uid])
            return offers[uid]  # type: ignore[no-any-return]

        find = partial(
            self.spaces.find, request.op_name, request.kernel_inputs, uids,
            (problem.M, problem.N, problem.K), list_of,
        )  # fmt: skip
        try:
            return self._choose_kernels(product, options, find())
        except NotOffered as error:
            log.debug("Inductor lists all that it offers for %s: %s.", problem, error)
            return self._choose_kernels(product, options, find(by_list=True))

    def _choose_kernels(
        self, product: Product, options: CompileOptions, space: OfferedSpace
    ) -> list[ChosenKernel]:
        """Return the kernels for the product, best first. Raises LeftToStock where none can be
        chosen.

        Where a matrix may be too large for Triton's templates, a library's kernel is chosen; none
        at all where an op asks for Triton's kernels alone after the library's, as addmm does, since
        to render one sets a guard that contradicts the program's bounds.
        """
        candidates, problem = space.candidates, product.problems[0]
        triton_only = not candidates.columns.extern.any()
        if not len(candidates) or (
            product.may_exceed_32_bits and triton_only and utils.use_aten_gemm_kernels()
        ):
            return []
        frozen: FrozenKernel | None = None
        if options.frozen is None:
            comparison = self._compare(product, options, candidates)
            places, why = comparison.choose()
            if not places:
                raise LeftToStock(
                    Fallback.NO_PREDICTION, f"the model knows no kernel for all sizes of {problem}"
                )
        else:
            frozen = FrozenKernel.find(options.frozen, product.form)
            places, why = frozen.places(candidates), Why.FROZEN
            if not places:  # the op asks for the frozen kernel in another request
                return []
            comparison = frozen.compare(candidates, places)
        choice = comparison.choice(places, why)

        def kernel_at(place: int, library: ChosenKernel | None = None) -> ChosenKernel:
            kernel = space.kernel(place)
            return ChosenKernel(
                choice, comparison, place, *kernel, self.outcomes, library, frozen=frozen
            )

        best = comparison.find_library(places)
        library = None if best is None or best in places else kernel_at(best)
        kernels = [kernel_at(place, library) for place in places]
        # With another backend's kernel there are several choices, and then one of them must be a
        # library's (see Comparison.choose).
        if library is not None and options.other_backends:
            kernels.append(library)
        only_library = all(kernel.candidate.is_extern for kernel in kernels)
        if product.may_exceed_32_bits and options.fast and not only_library:
            raise LeftToStock(
                Fallback.UNSUPPORTED,
                "a dynamic size may be so large that Triton's kernels cannot index the tensor",
            )
        return kernels

    def _compare(
        self, product: Product, options: CompileOptions, candidates: Sequence[Candidate]
    ) -> Comparison:
        """Return what the candidates cost by the model's predictions, and what a kernel must fulfil
        to be chosen. Raises LeftToStock where nothing is known of any."""
        problem = product.problems[0]
        prediction = self.predict(problem, candidates)
        if not len(prediction.order):
            raise LeftToStock(Fallback.NO_PREDICTION, f"the model has no prediction for {problem}")
        keep, threshold = self._how_many(prediction, options)
        # A benchmark of several kernels would use the hints alone, and the kernel that is fastest
        # there may be slow for other values of a dynamic size.
        if options.deterministic or len(product.problems) > 1:
            keep = 1
        comparison = self.chooser.policy.compare(
            prediction,
            problems=product.problems,
            predicted_us=self.chooser.predict_over(product.problems, prediction),
            saved_us=product.saved_us,
        )
        proven = comparison.proven if product.is_timed else comparison.library
        return replace(comparison, keep=keep, threshold=threshold, proven=proven)

    def _how_many(self, prediction: Prediction, options: CompileOptions) -> tuple[int, float]:
        """Return how many kernels to keep at most, and within how many times the shortest time.
        Raises LeftToStock where the model is not sure enough, and Inductor is to search then."""
        policy, confidence = self.chooser.policy, prediction.confidence
        keep = options.top_k or policy.keep
        if confidence is None or confidence >= options.confidence:
            return keep, policy.threshold
        if options.fallback:
            raise LeftToStock(
                Fallback.LOW_CONFIDENCE,
                f"the model is {confidence:.0%} sure of {prediction.problem}, which is less than "
                f"the {options.confidence:.0%} of diode_confidence_threshold",
            )
        return max(keep, prediction.count_to_reach(options.confidence) or 0), np.inf


def _computes(uid: str, problem: Problem) -> bool:
    """Return whether the template's kernels compute the problem. (torch 2.10 offers the template mm
    also for products with scales of blocks. These must be multiplied inside the loop over K, and mm
    multiplies after it.)"""
    return template_of(uid).space_for(problem.op.name).offered(problem)

"""InductorChoices that take the kernels a model predicts to be fastest.

Inductor asks `_finalize_template_configs` which of the kernels it could render it shall
render. That is where the space is widened, ranked and cut to the best: what is not rendered
costs nothing. An op can ask several times (addmm does from torch 2.13 on), so the last word is
`final_choice`'s, which sees the complete list of one op.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import sympy
import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from diode_engine.errors import IntegrationError
from diode_engine.hardware import Hardware, detect
from diode_engine.inductor.candidates import candidate_of, problem_of
from diode_engine.inductor.stats import Fallback, Stats
from diode_engine.problem import Candidate, Op, Problem
from diode_engine.resources import fits
from diode_engine.version import __version__

log = logging.getLogger(__name__)

HOOK = "_finalize_template_configs"
_ANNOTATION = "diode"
_OPS = frozenset(str(op) for op in Op)


class Predictor(Protocol):
    """What ranks candidates."""

    @property
    def identity(self) -> str:
        """A hash of all that its predictions depend on."""

    def predict_us(
        self, problem: Problem, candidates: Sequence[Candidate]
    ) -> npt.NDArray[np.float64]:
        """[n] microseconds; NaN where it cannot say."""


class _Stock(Exception):
    """This GEMM is left to stock Inductor."""

    def __init__(self, reason: Fallback, why: str) -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True)
class Prediction:
    """What a rendered choice carries to the end of the pipeline."""

    us: float
    chooser: Chooser


@dataclass(frozen=True)
class _Pick:
    """A chosen kernel, apart from the graph it was chosen in."""

    uid: str
    params: Any
    us: float


class Chooser:
    """Ranks what Inductor offers by a predictor, and remembers.

    The best `top_k` are kept, of those predicted to take up to `threshold` times the least
    time; one of them alone is taken as it is, several are benchmarked by Inductor.
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
        self.top_k = top_k
        self.threshold = threshold
        self.enable_fallback = enable_fallback
        self.stats = Stats()
        # all that a choice depends on besides the graph
        self.identity = (
            f"diode {__version__}, model {predictor.identity}, hardware {hardware.key}, "
            f"top {top_k} within {threshold}, torch {torch.__version__}, "
            f"triton {version('triton')}"
        )
        self._memory: dict[Any, tuple[_Pick, ...]] = {}

    def asked(self, op_name: str, kernel_inputs: Any, templates: Sequence[Any]) -> bool:
        """Whether this is a GEMM of Diode's for which there is more than ATen to choose."""
        return (
            op_name in _OPS
            and bool(templates)
            and kernel_inputs.device_type == "cuda"
            and bool(config.max_autotune or config.max_autotune_gemm)
        )

    def choose(
        self,
        op_name: str,
        kernel_inputs: Any,
        templates: Sequence[Any],
        overrides: dict[str, dict[str, Any]] | None,
        offered: Callable[[], list[Any]],
        *,
        rebuild: bool,
    ) -> list[Any] | None:
        """The KernelTemplateChoices to render, or None to leave it to stock Inductor.

        `offered` makes all that there is to choose from; it is not called where the answer is
        known and `rebuild` allows to make the choices from it.
        """
        start = time.perf_counter()
        self.stats.count(total_calls=1)
        try:
            return self._choose(op_name, kernel_inputs, templates, overrides, offered, rebuild)
        except _Stock as stock:
            self.fall_back(stock.reason, str(stock))
        except Exception as error:
            if not self.enable_fallback:
                raise
            log.debug("The choice of a kernel failed.", exc_info=True)
            self.fall_back(Fallback.ERROR, f"the choice failed, {type(error).__name__}: {error}")
        finally:
            self.stats.spent(time.perf_counter() - start)
        return None

    def fall_back(self, reason: Fallback, why: str) -> None:
        if self.stats.fallback(reason):
            log.warning(
                "Diode leaves GEMMs to stock Inductor: %s (%s; said once, counted in "
                "diode_engine.get_stats()).",
                why,
                reason,
            )

    def _choose(
        self,
        op_name: str,
        kernel_inputs: Any,
        templates: Sequence[Any],
        overrides: dict[str, dict[str, Any]] | None,
        offered: Callable[[], list[Any]],
        rebuild: bool,
    ) -> list[Any]:
        sizes = [x for shape in kernel_inputs.shapes_symbolic() for x in shape]
        sizes += [x for stride in kernel_inputs.strides_symbolic() for x in stride]
        static = all(isinstance(x, int | sympy.Integer) for x in sizes)
        if not static and free_unbacked_symbols(sizes):
            raise _Stock(Fallback.NO_HINT, "nothing is known about a dynamic size")
        device = kernel_inputs.device()
        if detect(device.index) != self.hardware:
            raise _Stock(
                Fallback.OTHER_DEVICE,
                f"the model was loaded for {self.hardware.name}, this is for {device}",
            )
        problem = problem_of(kernel_inputs, op_name)
        if problem is None:
            raise _Stock(
                Fallback.UNSUPPORTED,
                f"{op_name} of {kernel_inputs.dtypes()} with sizes "
                f"{kernel_inputs.shapes_symbolic()} is no problem that Diode knows",
            )
        # What a kernel is given follows from the problem alone only while sizes are static.
        key = (op_name, problem, tuple(t.uid for t in templates), repr(overrides))
        remember = static and rebuild
        if remember and (picks := self._memory.get(key)) is not None:
            self.stats.count(cache_hits=1)
            found = {template.uid: template for template in templates}
            chosen = [_rebuilt(pick, found[pick.uid], kernel_inputs, op_name) for pick in picks]
        else:
            chosen = offered()
            order, us = self._rank(problem, chosen) if chosen else ([], np.empty(0))
            picks = tuple(
                _Pick(chosen[i].template.uid, chosen[i].params, float(us[i])) for i in order
            )
            chosen = [chosen[i] for i in order]
            # TMA kernels depend on config options as well
            if remember and not any("tma" in pick.uid for pick in picks):
                self._memory[key] = picks
        for choice, pick in zip(chosen, picks, strict=True):
            choice.annotations[_ANNOTATION] = Prediction(pick.us, self)
        return chosen

    def _rank(
        self, problem: Problem, offered: list[Any]
    ) -> tuple[list[int], npt.NDArray[np.float64]]:
        """The best of the offered, best first, and [n] the microseconds predicted."""
        candidates = [candidate_of(choice) for choice in offered]
        fit = fits(problem, candidates, self.hardware)
        places = np.flatnonzero(fit)
        self.stats.count(
            configs_considered=len(offered), configs_filtered=len(offered) - len(places)
        )
        us = np.full(len(offered), np.nan)
        if len(places):
            us[places] = self.predictor.predict_us(problem, [candidates[i] for i in places])
        if not np.any(_known(us)):
            raise _Stock(Fallback.NO_PREDICTION, f"the model has no prediction for {problem}")
        return self.best(us), us

    def best(self, us: npt.NDArray[np.float64]) -> list[int]:
        """Where the best of the predictions [n] are, best first; one at least must be known."""
        times = np.where(_known(us), us, np.inf)
        order = np.argsort(times, kind="stable")[: self.top_k]
        return [int(i) for i in order if times[i] <= self.threshold * times[order[0]]]


def _known(us: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return np.isfinite(us) & (us > 0)


def _rebuilt(pick: _Pick, template: Any, kernel_inputs: Any, op_name: str) -> Any:
    """What InductorChoices.get_ktc would yield for the pick, without all the others."""
    heuristic = inductor_choices.get_template_heuristic(  # type: ignore[attr-defined]
        template.uid, kernel_inputs.device_type, op_name
    )
    return KernelTemplateChoice(
        template,
        pick.params,
        heuristic.get_extra_kwargs(kernel_inputs, op_name),
        kernel_inputs.output_layout(),
        heuristic.adjust_kernel_inputs(kernel_inputs, op_name),
    )


def prediction_of(choice: Any) -> Prediction | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it did not."""
    return (getattr(choice, "annotations", None) or {}).get(_ANNOTATION)


def final_choice(choices: list[Any]) -> list[Any]:
    """A preprocessing function of Inductor's: the best of the complete list of one op.

    Where another backend (CUTLASS, an external matmul, …) has added a kernel, the list stays
    as it is and Inductor benchmarks it: whoever turned that backend on wants it considered,
    and no prediction says how it compares.
    """
    known = [p for p in map(prediction_of, choices) if p is not None]
    if not known:
        return choices
    chooser = known[0].chooser
    if len(known) < len(choices):
        chooser.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    chooser.stats.count(model_selections=1)
    return [choices[i] for i in chooser.best(np.array([p.us for p in known]))]


class DiodeInductorChoices(InductorChoices):
    """Inductor's choices of GEMM kernels, made by a model of their times.

    `model_path` is the folder of a model artifact or a name in the registry ("name" or
    "name@version"); None takes the registry's best for this hardware. `device` is
    the index of the GPU to choose for (None: the current one). The `top_k_configs` kernels
    with the least predicted time are kept, of those within `performance_threshold` times the
    least one: with 1 that kernel is taken without any benchmarking, else Inductor benchmarks
    them. With `enable_fallback` an error in the choice leaves that GEMM to stock Inductor and
    is counted; without it is raised. `predictor` is used instead of a model from a file.

    Raises IntegrationError where there is no GPU, no model for it or no hook in this torch,
    ModelError or RegistryError where `model_path` cannot be loaded, and ValueError on
    impossible options.

    `install_diode_choices` puts it to work in all threads, with the cache keys right.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        device: int | None = None,
        top_k_configs: int = 3,
        enable_fallback: bool = True,
        performance_threshold: float = 1.1,
        *,
        predictor: Predictor | None = None,
    ) -> None:
        if not isinstance(top_k_configs, int) or top_k_configs < 1:
            raise ValueError(f"top_k_configs is {top_k_configs!r}; it must be 1 or more.")
        if not performance_threshold >= 1:
            raise ValueError(
                f"performance_threshold is {performance_threshold!r}; it must be 1.0 or more."
            )
        if not hasattr(InductorChoices, HOOK):
            raise IntegrationError(
                f"torch {torch.__version__} does not ask for choices of GEMM kernels; Diode "
                "needs torch 2.10 or newer."
            )
        hardware = detect(device)
        if hardware.backend != "cuda":
            raise IntegrationError(
                f"there is no NVIDIA GPU here ({hardware.backend} {hardware.name}), and Diode "
                "chooses kernels for those only."
            )
        self._diode = Chooser(
            predictor or _load(model_path, hardware),
            hardware,
            top_k=top_k_configs,
            threshold=performance_threshold,
            enable_fallback=enable_fallback,
        )

    def over(self, other: InductorChoices) -> InductorChoices:
        """These choices on top of another library's: GEMM kernels are chosen among what
        `other` offers, and everything else is asked of `other`."""
        if type(other) is InductorChoices:
            return self
        bases = (DiodeInductorChoices, type(other))
        kind = type(type(self).__name__, bases, {"_diode": self._diode})
        both: Any = object.__new__(kind)
        both.__dict__ = other.__dict__  # what it remembers is its own, and nobody writes here
        return both  # type: ignore[no-any-return]

    def get_stats(self) -> dict[str, int | float]:
        """What these choices did; see diode_engine.get_stats."""
        return self._diode.stats.snapshot()

    def uuid(self) -> str:
        """All that these choices depend on, for Inductor's cache keys."""
        below = getattr(super(), "uuid", None)
        return self._diode.identity if below is None else f"{self._diode.identity}, over {below()}"

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        stock = functools.partial(
            super()._finalize_template_configs,
            kernel_inputs=kernel_inputs,
            templates=templates,
            op_name=op_name,
            kwarg_overrides=kwarg_overrides,
        )
        if not self._diode.asked(op_name, kernel_inputs, templates):
            return stock(template_choices)

        def offered() -> list[Any]:
            # the generators read the search space when they are consumed
            with config.patch(max_autotune_gemm_search_space="EXHAUSTIVE"):
                return stock(template_choices)

        chosen = self._diode.choose(
            op_name,
            kernel_inputs,
            templates,
            kwarg_overrides,
            offered,
            rebuild=type(self) is DiodeInductorChoices,
        )
        if chosen is not None:
            add_final_choice()
            return chosen
        overrides = kwarg_overrides or {}
        return stock(  # from new generators: the others are consumed
            {
                t.uid: self.get_ktc(kernel_inputs, t, op_name, overrides.get(t.uid, {}))
                for t in templates
            }
        )


def _load(model_path: str | os.PathLike[str] | None, hardware: Hardware) -> Predictor:
    from diode_engine import registry
    from diode_engine.models import predictor

    if model_path is not None:
        return predictor.Predictor.load(registry.resolve(os.fspath(model_path)).folder)
    found = registry.load_predictor(hardware)
    if found is None:
        raise IntegrationError(f"there is no model for {hardware.name} or a GPU much like it.")
    return found


def add_final_choice() -> None:
    """Has Inductor call `final_choice`; others may have cleared all such functions."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    if final_choice not in functions:
        functions.append(final_choice)


def remove_final_choice() -> None:
    functions = get_algorithm_selector_cache().preprocessing_fns
    if final_choice in functions:
        functions.remove(final_choice)

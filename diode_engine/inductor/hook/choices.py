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
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import torch
from torch._inductor import choices as inductor_choices
from torch._inductor.choices import InductorChoices
from torch._inductor.select_algorithm import get_algorithm_selector_cache

from diode_engine.core.hardware import detect
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.chooser import Chooser, Predictor, Request
from diode_engine.inductor.choosing.decision import final_choice
from diode_engine.inductor.hook import fast
from diode_engine.inductor.hook.integration import ModelPointer
from diode_engine.inductor.lowering.space import search_space

log = logging.getLogger(__name__)

HOOK = "_finalize_template_configs"
# Of the call of `get_template_configs` under way: whether Diode chose something, and whether it
# is to keep out of it.
_chosen = ContextVar("diode_chosen", default=False)
_below = ContextVar("diode_below", default=False)


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
        reference = None if model_path is None else os.fspath(model_path)
        self._diode = Chooser(
            predictor or ModelPointer(reference=reference).load(hardware),
            hardware,
            top_k=top_k_configs,
            threshold=performance_threshold,
            enable_fallback=enable_fallback,
        )
        if self._diode.likeness < 1:
            log.warning(
                "There is no model for %s; one of %s chooses, and counts as %.0f %% as sure as it "
                "is there.",
                hardware.name, self._diode.trained_on, 100 * self._diode.likeness,
            )  # fmt: skip

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

    def get_template_configs(
        self,
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        """The rendered choices. Where anything of Diode's fails, or what it chose cannot be
        rendered, they are those of the choices below."""
        ask = functools.partial(
            super().get_template_configs, kernel_inputs, templates, op_name, kwarg_overrides
        )
        if not self._diode.enable_fallback:
            return ask()
        chosen = _chosen.set(False)
        try:
            rendered = ask()
            if rendered or not _chosen.get():
                return rendered
            error: Exception = IntegrationError("Inductor renders none of the chosen kernels.")
        except fast.LeftToDefault:
            raise
        except Exception as raised:  # noqa: BLE001
            error = raised
        finally:
            _chosen.reset(chosen)
        self._note(error)
        fast.leave_to_default()
        below = _below.set(True)
        try:
            return ask()
        finally:
            _below.reset(below)

    def _note(self, error: Exception) -> None:
        """Counts a failure; what fails may be the counting itself."""
        try:
            self._diode.failed("a choice could not be rendered", error)
        except Exception:
            log.debug("A failure was not counted.", exc_info=True)

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        if _below.get():
            return super()._finalize_template_configs(
                template_choices, kernel_inputs, templates, op_name, kwarg_overrides
            )
        start = time.perf_counter()
        diode = self._diode
        request = Request(op_name, kernel_inputs, templates, kwarg_overrides, template_choices)
        rebuild = type(self) is DiodeInductorChoices and _is_stock()
        if rebuild and (known := diode.again(request)) is not None:
            _chosen.set(bool(known))
            add_final_choice()
            diode.stats.called(time.perf_counter() - start)
            return known
        stock = functools.partial(
            super()._finalize_template_configs,
            kernel_inputs=kernel_inputs,
            templates=templates,
            op_name=op_name,
            kwarg_overrides=kwarg_overrides,
        )
        if not diode.asked(request):
            return stock(template_choices)

        def offered(uid: str | None) -> Iterable[Any]:
            # the generators read the search space when they are consumed
            with search_space("EXHAUSTIVE"):
                return stock(template_choices) if uid is None else list(template_choices[uid])

        try:
            chosen = diode.choose(request, offered, rebuild=rebuild)
        finally:
            diode.stats.called(time.perf_counter() - start)
        if chosen is not None:
            _chosen.set(bool(chosen))
            add_final_choice()
            return chosen
        fast.leave_to_default()
        overrides = kwarg_overrides or {}
        return stock(  # from new generators: the others are consumed
            {
                t.uid: self.get_ktc(kernel_inputs, t, op_name, overrides.get(t.uid, {}))
                for t in templates
            }
        )


def _is_stock() -> bool:
    """Whether nobody has replaced the hook below, who would want to see what is offered."""
    hook: Any = getattr(InductorChoices, HOOK)
    return getattr(hook, "__globals__", None) is vars(inductor_choices)


def add_final_choice() -> None:
    """Has Inductor call `final_choice`; others may have cleared all such functions."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    if final_choice not in functions:
        functions.append(final_choice)


def remove_final_choice() -> None:
    functions = get_algorithm_selector_cache().preprocessing_fns
    if final_choice in functions:
        functions.remove(final_choice)

"""InductorChoices that take the kernels which a model predicts to be fastest.

Inductor asks `_finalize_template_configs` which of the kernels that it could render it is to
render. There Diode widens the space, ranks it and cuts it to the best: what is not rendered costs
nothing. An op can ask several times (addmm does from torch 2.13 on), so the final decision is made
by `final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config
from torch._inductor.choices import InductorChoices

from diode_engine.choosing.chooser import TimePredictor
from diode_engine.core.hardware import detect
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing import default_mode
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.choosing.chosen_kernels import final_choice, takes_library
from diode_engine.inductor.choosing.compile_options import has_frozen_choices
from diode_engine.inductor.choosing.default_mode import Mode
from diode_engine.inductor.choosing.product import Request
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.guard import STOCK, Report, guard
from diode_engine.inductor.hook.integration import ModelPointer
from diode_engine.inductor.hook.options import make_unrepeatable_key
from diode_engine.inductor.hook.ranks import compare_with_first
from diode_engine.inductor.lowering import preprocessing
from diode_engine.inductor.lowering.candidates import is_usable
from diode_engine.inductor.lowering.sources import add_offers
from diode_engine.inductor.torch_internals import choices_slot
from diode_engine.inductor.torch_internals.versions import part, uuid_of
from diode_engine.inductor.torch_internals.wrapped_functions import FIXES_LAYOUT, HOOK, hook_of

log = logging.getLogger(__name__)

# While `get_template_configs` runs: whether Diode has chosen something, and whether the choices
# below are asked without Diode.
_chosen = ContextVar("diode_chosen", default=False)
_without_diode = ContextVar("diode_without", default=False)


def _below(name: str) -> Callable[..., Any]:
    """Return the method of this name of the choices below, as a method of DiodeInductorChoices."""
    return lambda self, *args, **kwargs: self._method_below(name)(*args, **kwargs)


def _report(self: DiodeInductorChoices, *_: Any, **__: Any) -> Report:
    return self.diode_chooser.outcomes.report_failure


class DiodeInductorChoices(InductorChoices):
    """Inductor's choices of kernels for products, made by a model of their times.

    `model_path` is the folder or file of a model, or a name in the registry ("name" or
    "name@version"); None takes the registry's best for this hardware. `device` is the index of the
    GPU to choose for, or "cuda:1" (None, "cuda": the current one; the model itself always runs on
    the CPU, as "cpu" says). Of the kernels that are predicted to take up to
    `performance_threshold` times the shortest time, the `top_k_configs` best are kept. If one is
    kept, it is taken without a benchmark; if several are, Inductor benchmarks them. With
    `enable_fallback`, an error in the choice is counted, and that product gets the library's kernel
    as in plain torch.compile; without, the error is raised. `predictor` is used instead of a model
    from a file.

    Raises IntegrationError where there is no GPU, no model for it or no hook in this torch,
    ModelError or RegistryError where `model_path` cannot be loaded, and ValueError for an invalid
    option.

    `install_diode_choices` installs such choices in all threads, with the right cache keys.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        device: int | str | None = None,
        top_k_configs: int = 3,
        enable_fallback: bool = True,
        performance_threshold: float = 1.1,
        *,
        predictor: TimePredictor | None = None,
    ) -> None:
        options = ChoiceOptions(
            model_path, device, top_k_configs, enable_fallback, performance_threshold,
            predictor=predictor,
        )  # fmt: skip
        # `over` gives the class that it makes this attribute too, beside the other's attributes.
        self.diode_chooser = _chooser(options)

    def over(self, other: InductorChoices) -> InductorChoices:
        """Return these choices on top of another library's: kernels are chosen among what
        `other` offers, and all other questions are passed on to `other`."""
        if type(other) is InductorChoices:
            return self
        chooser = {"diode_chooser": self.diode_chooser}
        both: InductorChoices = choices_slot.combine(DiodeInductorChoices, other, chooser)
        return both

    def _method_below(self, name: str) -> Callable[..., Any]:
        """Return the method that answers where Diode's of this name leaves a question."""
        return choices_slot.method_below(DiodeInductorChoices, self, name)

    @staticmethod
    def remove_preprocessing() -> None:
        """Have Inductor call none of Diode's functions with its lists of choices."""
        preprocessing.remove(final_choice)

    def get_stats(self) -> dict[str, int | float]:
        """Return what these choices did; see diode_engine.get_stats."""
        return self.diode_chooser.outcomes.stats.snapshot()

    @guard("a cache key of its choices could not be made", stock=make_unrepeatable_key)
    def uuid(self) -> str:
        """Return everything that these choices depend on, for Inductor's cache keys; where that
        cannot be told, a key under which nothing is found."""
        # Here, since Inductor reads its whole config, with this key, in each compile.
        compare_with_first(self.diode_chooser.identity_parts)
        own, below = self.diode_chooser.identity, uuid_of(super())
        return own if below is None else f"{own}, over {below}"

    def _get_template_configs_below(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the rendered choices of the choices below Diode's."""
        default_mode.leave_to_default()
        token = _without_diode.set(True)
        try:
            rendered: list[Any] = self._method_below("get_template_configs")(*args, **kwargs)
            return rendered
        finally:
            _without_diode.reset(token)

    @guard("a choice could not be rendered", stock=_get_template_configs_below, report=_report)
    def get_template_configs(
        self,
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        """Return the rendered choices. Where a part of Diode fails, or its choice cannot be
        rendered, the product is lowered as in the default mode; where the program asks for a
        search, they are those of the choices below Diode's."""
        chosen = _chosen.set(False)
        try:
            rendered: list[Any] = self._method_below("get_template_configs")(
                kernel_inputs, templates, op_name, kwarg_overrides
            )
            if _chosen.get() and not rendered:
                raise IntegrationError("Inductor renders none of the chosen kernels.")
            return rendered
        finally:
            _chosen.reset(chosen)

    # Inductor's own is a static method, which could not ask the class below (see `over`).
    @guard(
        "whether to fuse could not be decided", stock=_below("can_fuse_vertical"), report=_report
    )
    def can_fuse_vertical(  # type: ignore[override]
        self, scheduler: Any, node1: Any, node2: Any, shared_data_score: int
    ) -> bool:
        """Return whether Inductor may fuse `node2` behind `node1`: not where a kernel that Diode
        has taken would spill registers for it."""
        return STOCK if registers.can_fuse(node1, node2) else False

    @guard(
        "the layout of an output was not decided",
        stock=_below(FIXES_LAYOUT),
        report=_report,
    )
    def _need_to_fix_layout(self, adjusted_choices: list[Any], op_name: str) -> bool:
        """Return whether Inductor fixes the layout of the output before it is known what reads it:
        as in plain torch.compile where Diode takes the library's kernel. There the output of mm and
        addmm may get wide rows at aligned distances, or be a part of a larger tensor."""
        if takes_library(adjusted_choices):  # Inductor's own rule where it does not autotune
            flexible = op_name in ("mm", "addmm")
            return not (flexible or part(config, "max_autotune_allow_flexible_layouts"))
        stock: bool = STOCK
        return stock

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        if _without_diode.get() or default_mode.current_mode() is Mode.DEFAULT:
            rendered: list[Any] = self._method_below(HOOK)(
                template_choices, kernel_inputs, templates, op_name, kwarg_overrides
            )
            return rendered
        start = time.perf_counter()
        chooser, stats = self.diode_chooser, self.diode_chooser.outcomes.stats
        offers = add_offers(op_name, template_choices, kwarg_overrides)
        usable = {uid: each for uid, each in offers.items() if is_usable(uid)}
        request = Request(op_name, kernel_inputs, kwarg_overrides, usable)
        whole = choices_slot.whole_of(self)
        rebuild = type(whole) is DiodeInductorChoices and _is_stock()
        if rebuild and (known := chooser.remembered_choices(request)) is not None:
            _chosen.set(bool(known))
            preprocessing.add(final_choice)
            stats.count_call(time.perf_counter() - start)
            return known
        stock: Callable[..., list[Any]] = functools.partial(
            self._method_below(HOOK),
            kernel_inputs=kernel_inputs,
            templates=templates,
            op_name=op_name,
            kwarg_overrides=kwarg_overrides,
        )
        if not chooser.should_choose(request):
            return stock(template_choices)
        if not chooser.knows(op_name):
            stats.count_passed(op_name)
            default_mode.leave_to_default()
            return stock(template_choices)

        try:
            chosen = chooser.choose(request, lambda: stock(usable), rebuild=rebuild)
        finally:
            stats.count_call(time.perf_counter() - start)
        if chosen is not None:
            _chosen.set(bool(chosen))
            preprocessing.add(final_choice)
            return chosen
        default_mode.leave_to_default()
        overrides = kwarg_overrides or {}
        return stock(  # from new generators: the others are consumed
            {
                t.uid: whole.get_ktc(kernel_inputs, t, op_name, overrides.get(t.uid, {}))
                for t in templates
            }
        )


def _chooser(options: ChoiceOptions) -> ProductChooser:
    """Return the chooser with these options for a GPU of this machine. Raises as
    DiodeInductorChoices does."""
    options.check()
    if hook_of(InductorChoices) is None:
        raise IntegrationError(
            f"torch {torch.__version__} does not ask for choices of kernels; Diode "
            "needs torch 2.10 or newer."
        )
    hardware = detect(options.index)
    if not hardware.is_supported:
        raise IntegrationError(
            f"there is no NVIDIA GPU here ({hardware.backend} {hardware.name}), and Diode "
            "chooses kernels for those only."
        )
    model = options.model_path
    reference = None if model is None else os.fspath(model)

    def load() -> TimePredictor:
        return options.predictor or ModelPointer(reference=reference).load(hardware)

    chooser = ProductChooser(load, hardware, options)
    if has_frozen_choices():
        return chooser
    trained_on, policy = chooser.chooser.trained_on, chooser.chooser.policy
    if trained_on.name != hardware.name:
        log.warning(
            "There is no model for %s; the model of %s chooses, and its confidence is multiplied "
            "by %.2f, the likeness of the two.",
            hardware.name, trained_on.name, policy.likeness,
        )  # fmt: skip
    return chooser


def _is_stock() -> bool:
    """Return whether the hook below is Inductor's own. A hook that somebody has put there must see
    everything that is offered."""
    return getattr(hook_of(InductorChoices), "__globals__", None) is vars(inductor_choices)

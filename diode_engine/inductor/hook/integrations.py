"""Diode's own integrations: what each chooses, and where it attaches to torch.

All but `matmul` replace functions of Inductor that have no hook. Each of these has a module with
`check_place()`, which tests the place with a dummy, and `apply(patches)`, which wraps its
functions. The module imports Inductor, so it is imported only when Inductor is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.hook.installation import INSTALLATION, MATMUL, is_disabled
from diode_engine.inductor.hook.integration import BaseIntegration, ModelPointer, State
from diode_engine.inductor.patches import Patches

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices

_NEEDED = "Diode needs torch 2.10 or newer with Inductor and Triton"


def make_choices(options: ChoiceOptions) -> DiodeInductorChoices:
    """Make choices that are not installed yet. Errors are those of DiodeInductorChoices, and
    IntegrationError where torch cannot be imported or has no Inductor."""
    try:
        from diode_engine.inductor.hook.choices import DiodeInductorChoices
    except ImportError as error:
        raise IntegrationError(f"{_NEEDED}: {error}.") from error
    return DiodeInductorChoices(**vars(options))


class MatmulIntegration(BaseIntegration):
    """The choices of templates: Inductor's kernels for Diode's operators, chosen as
    `install_diode_choices` describes. With `top_k_configs` 1 the kernel is taken without a
    benchmark. It attaches to Inductor's slot of choices (`hook/installation.py`)."""

    name = MATMUL
    execute_order = 0

    def __init__(
        self,
        *,
        model: ModelPointer | None = None,
        top_k_configs: int = 1,
        enable_fallback: bool = True,
    ) -> None:
        super().__init__(enable_fallback=enable_fallback)
        self._model = model or ModelPointer()
        self._top_k = top_k_configs
        self._choices: DiodeInductorChoices | None = None

    @property
    def models(self) -> Sequence[ModelPointer]:
        return (self._model,)

    def dry_run(self) -> None:
        """Have Inductor ask a dummy in the slot of choices, in this thread only."""
        if is_disabled():
            raise IntegrationError("DIODE_DISABLE is set")
        try:
            from torch._inductor.choices import InductorChoices
            from torch._inductor.virtualized import V
        except ImportError as error:
            raise IntegrationError(f"{_NEEDED}: {error}.") from error
        asked: list[str] = []

        class Dummy(InductorChoices):
            def _finalize_template_configs(
                self, template_choices: Any, kernel_inputs: Any, templates: Any, op_name: str,
                kwarg_overrides: Any = None,
            ) -> list[Any]:  # fmt: skip
                asked.append(op_name)
                return []

        no_inputs: Any = SimpleNamespace(
            nodes=lambda: [None, None], output_layout=lambda flexible=True: None
        )
        with V.set_choices_handler(Dummy()):
            V.choices.get_template_configs(no_inputs, [], "mm")
        if asked != ["mm"]:
            raise IntegrationError(
                "this torch does not ask for choices of kernels; Diode needs 2.10 or newer."
            )

    def load(self) -> None:
        self._choices = make_choices(
            ChoiceOptions(
                self._model.reference,
                top_k_configs=self._top_k,
                enable_fallback=self.enable_fallback,
            )
        )

    def enable(self) -> None:
        assert self._choices is not None
        INSTALLATION.install(self._choices)

    def disable(self) -> None:
        INSTALLATION.uninstall()

    def state(self) -> tuple[State, str]:
        return INSTALLATION.state()


class PatchIntegration(BaseIntegration):
    """An integration that wraps functions of Inductor's modules; the model of `matmul` chooses.
    `module` is the module of this package that has its `check_place` and `apply`."""

    requires = MATMUL

    def __init__(self, name: str, execute_order: int, module: str) -> None:
        super().__init__()
        self.name, self.execute_order = name, execute_order
        self._module = module
        self._patches = Patches()
        self._place: Any = None

    def dry_run(self) -> None:
        self._place = importlib.import_module(f"{__package__}.{self._module}")
        self._place.check_place()

    def load(self) -> None:
        """Load nothing: the functions ask for the present choices' model when they are called."""

    def enable(self) -> None:
        try:
            self._place.apply(self._patches)
        except Exception:
            self._patches.restore()
            raise

    def disable(self) -> None:
        self._patches.restore()


class MeasuredIntegration(PatchIntegration):
    """An integration with a model of its own, `model` of the chooser; off on a GPU that has
    none."""

    def __init__(self, name: str, execute_order: int, model: Callable[[Any], bool]) -> None:
        super().__init__(name, execute_order, name)
        self._has_model = model

    def state(self) -> tuple[State, str] | None:
        choices = INSTALLATION.decision.choices
        if choices is None or self._has_model(choices.diode_chooser):
            return None
        hardware = choices.diode_chooser.hardware
        return State.INACTIVE, f"nothing was measured for it on {hardware.name}"


# What Diode attaches to torch, in the order in which it is turned on. Each module says what it
# wraps.
for _integration in (
    MatmulIntegration(),
    PatchIntegration("fast_autotune", 10, "fast_autotune"),
    PatchIntegration("grouped_mm", 20, "grouped_products"),
    MeasuredIntegration("flex_attention", 30, lambda chooser: chooser.flex.is_measured()),
    PatchIntegration("convolution", 40, "convolutions"),
    PatchIntegration("mm_plus_mm", 50, "mm_plus_mm"),
    PatchIntegration("shape_padding", 60, "shape_padding"),
    PatchIntegration("activations", 70, "activations"),
    MeasuredIntegration("library_algorithms", 80, lambda chooser: chooser.algorithms.model),
    PatchIntegration("dynamic_rows", 90, "dynamic_rows"),
):
    INSTALLATION.integrations.register(_integration)

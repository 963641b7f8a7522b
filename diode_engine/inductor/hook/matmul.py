"""Diode's own integration, and the functions over all integrations."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.hook import install, slot
from diode_engine.inductor.hook.create import choices_by
from diode_engine.inductor.hook.integration import (
    BaseIntegration,
    IntegrationRegistry,
    ModelPointer,
)
from diode_engine.inductor.hook.state import State
from diode_engine.version import __version__, torch_version, triton_version

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices


class MatmulIntegration(BaseIntegration):
    """Inductor's kernels for Diode's operators, chosen as `install_diode_choices` describes: with
    `top_k_configs` 1 the kernel is taken without a benchmark."""

    name = "matmul"
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
        """Inductor asks a dummy in the choices' slot, in this thread only."""
        if slot.disabled():
            raise IntegrationError("DIODE_DISABLE is set")
        try:
            from torch._inductor.choices import InductorChoices
            from torch._inductor.virtualized import V
        except ImportError as error:
            raise IntegrationError(
                f"Diode needs torch 2.10 or newer with Inductor and Triton: {error}."
            ) from error
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
                "this torch does not ask for choices of GEMM kernels; Diode needs 2.10 or newer."
            )

    def load(self) -> None:
        self._choices = choices_by(
            ChoiceOptions(
                self._model.reference,
                top_k_configs=self._top_k,
                enable_fallback=self.enable_fallback,
            )
        )

    def enable(self) -> None:
        assert self._choices is not None
        slot.put_in_place(self._choices)

    def disable(self) -> None:
        install.uninstall_diode_choices()

    def state(self) -> tuple[State, str]:
        return slot.state()


def create_matmul_integration(enable_fallback: bool = True) -> MatmulIntegration:
    """An integration that takes the registry's best model for the present GPU."""
    return MatmulIntegration(enable_fallback=enable_fallback)


_registry = IntegrationRegistry()
_registry.register(create_matmul_integration())


def register_integration(integration: BaseIntegration, execute_order: int | None = None) -> None:
    """Adds an integration, which `integrate_all` turns on in the order of `execute_order` (None:
    its own; Diode's is 0). It takes the place of another one of its name, which the log says."""
    _registry.register(integration, execute_order)


def discover_and_register_integrations() -> list[str]:
    """Adds the integrations of installed packages (entry points of the group
    `diode_engine.integrations`) and returns the names of the new ones. A package that fails is
    skipped with a warning."""
    return _registry.discover()


def integrate_all() -> dict[str, bool]:
    """Discovers integrations, then turns on all that are not active, in their order; returns for
    each name whether it is active now."""
    _registry.discover()
    return _registry.integrate_all()


def get_integration_status() -> dict[str, Any]:
    """The versions of diode, python, torch and triton (None where not installed), the hardware
    (None without torch), and for each integration its state in this thread, the reason why it is
    not active, its order and its models. Imports torch where it is installed and, as the first
    compile would, loads the model for the GPU."""
    slot.settle()
    return {
        "diode": __version__,
        "python": sys.version.split()[0],
        "torch": torch_version(),
        "triton": triton_version(),
        "hardware": _hardware(),
        "integrations": _registry.status(),
    }


def _hardware() -> Mapping[str, Any] | None:
    from diode_engine.core.hardware import detect

    try:
        return detect().to_dict()
    except (ImportError, DiodeError):
        return None

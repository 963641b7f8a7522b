"""The functions of `diode_engine` that install and remove Diode's choices, turn integrations on,
and say what they did."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions, taking
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.inductor.hook.installation import INSTALLATION, is_disabled
from diode_engine.inductor.hook.integration import BaseIntegration, State
from diode_engine.inductor.hook.integrations import MatmulIntegration, make_choices
from diode_engine.version import __version__, torch_version, triton_version

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices

log = logging.getLogger(__name__)


@taking(ChoiceOptions)
def create_diode_choices(options: ChoiceOptions) -> DiodeInductorChoices:
    """Make choices that are not installed yet; arguments and errors are those of
    DiodeInductorChoices. Raises IntegrationError also where torch cannot be imported or has no
    Inductor."""
    return make_choices(options)


@taking(ChoiceOptions)
def install_diode_choices(options: ChoiceOptions) -> bool:
    """Make the compiles of every thread choose by these options from now on (DiodeInductorChoices
    describes them); return whether that succeeded. `import diode_engine` has done it already, with
    top_k_configs=1.

    What was compiled before is compiled again; while another thread runs or compiles something, it
    is not, and a warning is logged. Where Diode cannot choose (DIODE_DISABLE, torch older than
    2.10, no GPU, no model for it), one line in the log says why, nothing changes, and the result is
    False. Raises ModelError or RegistryError where `model_path` cannot be loaded, and ValueError
    for an invalid option.
    """
    return _install(options)


@taking(ChoiceOptions)
@contextmanager
def diode_choices(options: ChoiceOptions) -> Iterator[bool]:
    """Call `install_diode_choices` for the time of a block: yields its result, and restores at the
    end what was there before. Compiled graphs are dropped at both ends."""
    before = INSTALLATION.snapshot()
    installed = _install(options)
    try:
        yield installed
    finally:
        if installed:
            INSTALLATION.restore(before)


def _install(options: ChoiceOptions) -> bool:
    if is_disabled():
        log.warning("Diode's choices are not installed: DIODE_DISABLE is set.")
        return False
    try:
        INSTALLATION.install(make_choices(options))
    except IntegrationError as error:
        log.warning("Diode's choices are not installed: %s", error)
        INSTALLATION.set_reason(str(error))
        return False
    return True


def uninstall_diode_choices() -> None:
    """Restore stock choices, or those of whoever had the slot before; also cancel what `import
    diode_engine` has prepared. Does nothing where nothing is installed."""
    INSTALLATION.uninstall()


def get_stats() -> dict[str, int | float | str | bool]:
    """Return what Diode's choices have done in this process since they were installed.

    active (whether torch asks them in this thread, at present), reason (why not, else ""), model
    (its hash, "" if none is loaded), hardware (the GPU's name), trained_on (that of the model's);
    total_calls (of Inductor's hook for products), model_selections (products with a choice),
    benchmarked (of these, with several kernels left to Inductor to time), configs_considered,
    configs_filtered (could not have been launched), cache_hits (repeated problems), fusion_decided
    (another kernel was taken for what fusing saves), padding_decided (without shape_padding's
    benchmark), flex_decided (FlexAttention's calls whose config was chosen), convolutions_kept
    (that became no products: they may use TF32, and products may not), activations_moved (into the
    library's product), algorithms_chosen (of the library, another than torch's), fallbacks and
    fallback_<reason> (products without a choice), passed_<op> (products of operators that there is
    no model for, and calls of FlexAttention unlike those that were measured), seconds (spent
    choosing)."""
    decision, (state, reason) = INSTALLATION.decision, INSTALLATION.state()
    chooser = None if decision.choices is None else decision.choices.diode_chooser
    return {
        "active": state is State.ACTIVE,
        "reason": reason,
        "model": chooser.model if chooser else "",
        "hardware": chooser.hardware.name if chooser else "",
        "trained_on": chooser.chooser.trained_on.name if chooser and chooser.model else "",
        **decision.stats.snapshot(),
    }


def get_prediction_stats() -> dict[str, int | float]:
    """Return total_predictions (products decided by the model since it was installed),
    avg_confidence (the mean probability that the choice is within 5 % of the best; nan where none
    is known, as for a model without confidence), benchmarked, cache_hits, fallbacks (as in
    get_stats), avg_ms (the mean time in the hook; nan before its first call)."""
    return INSTALLATION.decision.stats.predictions()


def create_matmul_integration(enable_fallback: bool = True) -> MatmulIntegration:
    """Make an integration that takes the registry's best model for the present GPU."""
    return MatmulIntegration(enable_fallback=enable_fallback)


def register_integration(integration: BaseIntegration, execute_order: int | None = None) -> None:
    """Add an integration, which `integrate_all` turns on in the order of `execute_order` (None:
    its own; Diode's are 0 to 90). It takes the place of another one of its name, which the log
    says."""
    INSTALLATION.integrations.register(integration, execute_order)


def discover_and_register_integrations() -> list[str]:
    """Add the integrations of installed packages (entry points of the group
    `diode_engine.integrations`) and return the names of the new ones. A package that fails is
    skipped with a warning."""
    return INSTALLATION.integrations.discover()


def integrate_all() -> dict[str, bool]:
    """Discover integrations, then turn on all that are not active, in their order; return for each
    name whether it is active now."""
    INSTALLATION.integrations.discover()
    return INSTALLATION.integrations.integrate_all()


def get_integration_status() -> dict[str, Any]:
    """Return the versions of diode, python, torch and triton (None where not installed), the
    hardware (None without torch), the fingerprint (its key, and by name everything that choices
    depend on besides the program: processes with the same key choose alike), and for each
    integration its state in this thread, the reason why it is not active, its order and its models.
    Imports torch where it is installed and, as the first compile would, loads the model for the
    GPU."""
    INSTALLATION.decide()
    return {
        "diode": __version__,
        "python": sys.version.split()[0],
        "torch": torch_version(),
        "triton": triton_version(),
        "hardware": _read_hardware(),
        "fingerprint": read_fingerprint().to_dict(),
        "integrations": INSTALLATION.integrations.status(),
    }


def _read_hardware() -> Mapping[str, Any] | None:
    from diode_engine.core.hardware import detect

    try:
        return detect().to_dict()
    except (ImportError, DiodeError):
        return None

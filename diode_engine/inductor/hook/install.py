"""Diode's choices in torch.compile: put in place, taken out, and what they did."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from diode_engine.errors import IntegrationError
from diode_engine.inductor.hook import slot
from diode_engine.inductor.hook.create import create_diode_choices

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Predictor

log = logging.getLogger(__name__)


def install_diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> bool:
    """Has every thread's compiles choose by these options from now on (they are described at
    DiodeInductorChoices); True where it does. `import diode_engine` has done it already, with
    top_k_configs=1.

    What is compiled already is compiled anew, but while another thread is in it: a warning says so.
    Where it cannot be (DIODE_DISABLE, torch older than 2.10, no GPU, no model for it) one
    line in the log says why, nothing changes, and the answer is False. Raises ModelError or
    RegistryError where `model_path` cannot be loaded.
    """
    if slot.disabled():
        log.warning("Diode's choices are not installed: DIODE_DISABLE is set.")
        return False
    try:
        choices = create_diode_choices(
            model_path,
            device,
            top_k_configs,
            enable_fallback,
            performance_threshold,
            predictor=predictor,
        )
    except IntegrationError as error:
        log.warning("Diode's choices are not installed: %s", error)
        slot.explain(str(error))
        return False
    slot.put_in_place(choices)
    return True


@contextmanager
def diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> Iterator[bool]:
    """`install_diode_choices` for a while: yields what it returns, and at the end puts back
    what was chosen by before. Compiled graphs are forgotten at both ends."""
    was = slot.before()
    installed = install_diode_choices(
        model_path,
        device,
        top_k_configs,
        enable_fallback,
        performance_threshold,
        predictor=predictor,
    )
    try:
        yield installed
    finally:
        if installed:
            slot.put_back(was)


def uninstall_diode_choices() -> None:
    """Stock choices again, or those of whoever had the slot before; also calls off what
    `import diode_engine` has arranged. Does nothing where nothing is installed."""
    slot.take_out()


def get_stats() -> dict[str, int | float | str | bool]:
    """What Diode's choices have done in this process since they were installed.

    active, reason (why not active, else ""), model (its hash, "" if none), hardware (the GPU's
    name), trained_on (that of the model's); total_calls (of Inductor's hook for GEMMs),
    model_selections (GEMMs decided), benchmarked (of these, with several kernels left to
    Inductor to time), configs_considered, configs_filtered (could not have been launched),
    cache_hits (repeated problems), fusion_decided (another kernel was taken for what fusing
    saves), padding_decided (without shape_padding's benchmark), fallbacks and fallback_<reason>
    (GEMMs left to stock Inductor), passed_<op> (GEMMs of ops that there is no model for), seconds
    (spent choosing).
    """
    choices = slot.held.choices
    diode = choices._diode if choices is not None else None
    return {
        "active": choices is not None,
        "reason": slot.held.reason,
        "model": diode.predictor.identity if diode else "",
        "hardware": diode.hardware.name if diode else "",
        "trained_on": diode.trained_on if diode else "",
        **slot.held.stats.snapshot(),
    }


def get_prediction_stats() -> dict[str, int | float | None]:
    """total_predictions (GEMMs decided by the model since it was installed), avg_confidence (the
    mean probability that the choice is within 5 % of the best; None where the model cannot
    tell), benchmarked, cache_hits, fallbacks (as in get_stats), avg_ms (the mean time in the
    hook; None before its first call)."""
    return slot.held.stats.predictions()

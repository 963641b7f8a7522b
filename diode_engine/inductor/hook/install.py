"""Installs and removes Diode's choices in torch.compile, and says what they did."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions, taking
from diode_engine.inductor.hook import slot
from diode_engine.inductor.hook.create import choices_by
from diode_engine.inductor.hook.state import State

log = logging.getLogger(__name__)


@taking(ChoiceOptions)
def install_diode_choices(options: ChoiceOptions) -> bool:
    """Makes the compiles of every thread choose by these options from now on (DiodeInductorChoices
    describes them); returns whether that succeeded. `import diode_engine` has done it already, with
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
    """`install_diode_choices` for the time of a block: yields its result, and restores at the end
    what was there before. Compiled graphs are dropped at both ends."""
    was = slot.in_place()
    installed = _install(options)
    try:
        yield installed
    finally:
        if installed:
            slot.put_back(was)


def _install(options: ChoiceOptions) -> bool:
    if slot.disabled():
        log.warning("Diode's choices are not installed: DIODE_DISABLE is set.")
        return False
    try:
        choices = choices_by(options)
    except IntegrationError as error:
        log.warning("Diode's choices are not installed: %s", error)
        slot.explain(str(error))
        return False
    slot.put_in_place(choices)
    return True


def uninstall_diode_choices() -> None:
    """Restores stock choices, or those of whoever had the slot before; also cancels what `import
    diode_engine` has arranged. Does nothing where nothing is installed."""
    slot.take_out()


def get_stats() -> dict[str, int | float | str | bool]:
    """What Diode's choices have done in this process since they were installed.

    active (in this thread), reason (why not active, else ""), model (its hash, "" if none),
    hardware (the GPU's name), trained_on (that of the model's); total_calls (of Inductor's hook for
    GEMMs), model_selections (GEMMs decided), benchmarked (of these, with several kernels left to
    Inductor to time), configs_considered, configs_filtered (could not have been launched),
    cache_hits (repeated problems), fusion_decided (another kernel was taken for what fusing
    saves), padding_decided (without shape_padding's benchmark), flex_decided (FlexAttention's calls
    whose config was chosen), convolutions_kept (that became no products: they may use TF32, and
    products may not), fallbacks and fallback_<reason> (GEMMs without a choice), passed_<op>
    (GEMMs of ops that there is no model for, and calls of FlexAttention unlike those that were
    measured), seconds (spent choosing).
    """
    now, (state, reason) = slot.in_place(), slot.state()
    chooser = now.choices.diode_chooser if now.choices is not None else None
    return {
        "active": state is State.ACTIVE,
        "reason": reason,
        "model": chooser.predictor.identity if chooser else "",
        "hardware": chooser.hardware.name if chooser else "",
        "trained_on": chooser.trained_on if chooser else "",
        **now.stats.snapshot(),
    }


def get_prediction_stats() -> dict[str, int | float]:
    """total_predictions (GEMMs decided by the model since it was installed), avg_confidence (the
    mean probability that the choice is within 5 % of the best; nan where none is known, as for a
    model without confidence), benchmarked, cache_hits, fallbacks (as in get_stats), avg_ms (the
    mean time in the hook; nan before its first call)."""
    return slot.in_place().stats.predictions()

"""The chooser behind Inductor's present choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diode_engine.inductor.torch_internals import DEVICE_TYPE, choices_slot

if TYPE_CHECKING:
    import torch

    from diode_engine.inductor.choosing.product_chooser import ProductChooser
    from diode_engine.inductor.guard import Report


def chooser_of(choices: Any) -> ProductChooser | None:
    """The chooser of the DiodeInductorChoices that Inductor asks for kernels, where these are a
    thread's choices; None where it asks others."""
    asks, hook = choices_slot.asked_parts(choices)
    return getattr(hook, "diode_chooser", None) if asks is hook else None


def current_chooser() -> ProductChooser | None:
    """The chooser of this thread's choices; None where they are not Diode's."""
    return chooser_of(choices_slot.present())


def chooser_for(target: torch.device | None) -> ProductChooser | None:
    """Return the chooser of this thread's choices, where it chooses for a device of this type; else
    None."""
    return current_chooser() if target is not None and target.type == DEVICE_TYPE else None


def report_failure(*_: Any, **__: Any) -> Report | None:
    """The function that counts and logs a failure of this thread's choices; None where they are not
    Diode's. It takes and ignores the arguments of a guarded function."""
    chooser = current_chooser()
    return None if chooser is None else chooser.outcomes.report_failure

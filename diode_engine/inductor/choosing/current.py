"""The Chooser behind Inductor's present choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diode_engine.inductor.torch_internals import choices_slot

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Chooser
    from diode_engine.inductor.guard import Report


def chooser_of(choices: Any) -> Chooser | None:
    """The chooser of DiodeInductorChoices; None for other choices."""
    return getattr(choices, "diode_chooser", None)


def current_chooser() -> Chooser | None:
    """The chooser of this thread's choices; None where they are not Diode's."""
    return chooser_of(choices_slot.present())


def report_failure(*_: Any, **__: Any) -> Report | None:
    """The function that counts and logs a failure of this thread's choices; None where they are not
    Diode's. It takes and ignores the arguments of a guarded function."""
    chooser = current_chooser()
    return None if chooser is None else chooser.outcomes.failed

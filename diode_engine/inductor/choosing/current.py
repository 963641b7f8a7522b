"""The Chooser behind Inductor's present choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diode_engine.inductor.torch_internals import choices_slot

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Chooser


def chooser_of(choices: Any) -> Chooser | None:
    """The chooser of DiodeInductorChoices; None for other choices."""
    return getattr(choices, "diode_chooser", None)


def current_chooser() -> Chooser | None:
    """The chooser of this thread's choices; None where they are not Diode's."""
    return chooser_of(choices_slot.present())

"""The Chooser behind Inductor's present choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Chooser


def chooser_of(choices: Any) -> Chooser | None:
    """The chooser of DiodeInductorChoices; None for other choices."""
    return getattr(choices, "diode_chooser", None)


def current_chooser() -> Chooser | None:
    """The chooser of this thread's choices; None where they are not Diode's."""
    from torch._inductor.virtualized import V  # torch is not needed to ask for `chooser_of`

    # `V.choices` is a proxy. The choices behind it are the object that a method is bound to.
    return chooser_of(getattr(getattr(V.choices, "get_ktc", None), "__self__", None))

"""Makes Diode's choices where torch may be missing or may have no Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.choice_options import ChoiceOptions, taking

if TYPE_CHECKING:
    from diode_engine.inductor.hook.choices import DiodeInductorChoices


@taking(ChoiceOptions)
def create_diode_choices(options: ChoiceOptions) -> DiodeInductorChoices:
    """Choices that are not installed yet; arguments and errors are those of DiodeInductorChoices.
    Raises IntegrationError also where torch cannot be imported or has no Inductor."""
    return choices_by(options)


def choices_by(options: ChoiceOptions) -> DiodeInductorChoices:
    """`create_diode_choices` with the options as one record."""
    try:
        from diode_engine.inductor.hook.choices import DiodeInductorChoices
    except ImportError as error:
        raise IntegrationError(
            f"Diode needs torch 2.10 or newer with Inductor and Triton: {error}."
        ) from error
    return DiodeInductorChoices(**vars(options))

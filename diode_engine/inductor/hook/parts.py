"""The parts of Diode at other places of Inductor than the choices' slot."""

from __future__ import annotations


def attach() -> None:
    """Installs them, once. Raises ImportError in the middle of Inductor's own imports, and other
    errors where this torch has no place for them."""
    from diode_engine.inductor.hook import convolutions, fast, grouped, sums
    from diode_engine.inductor.padding import shape_padding

    fast.attach()
    grouped.attach()
    convolutions.attach()
    sums.attach()
    shape_padding.attach()


def detach() -> None:
    """Restores what was there."""
    from diode_engine.inductor.choosing.final_choice import final_choice
    from diode_engine.inductor.hook import convolutions, fast, grouped, sums
    from diode_engine.inductor.lowering import preprocessing
    from diode_engine.inductor.padding import shape_padding

    preprocessing.remove(final_choice)
    fast.detach()
    grouped.detach()
    convolutions.detach()
    sums.detach()
    shape_padding.detach()

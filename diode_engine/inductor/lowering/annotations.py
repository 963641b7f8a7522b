"""What a choice of Inductor's carries along: a dictionary that whoever has made it may fill."""

from __future__ import annotations

from typing import Any


def annotation_of(choice: Any, name: str) -> Any:
    """None where there is none by this name. Choices of others may have no dictionary at all."""
    return (getattr(choice, "annotations", None) or {}).get(name)


def template_choice_of(choice: Any) -> Any:
    """The KernelTemplateChoice that the choice was rendered from; None where it was made in another
    way, as another backend's kernels are."""
    return annotation_of(choice, "ktc")

"""What a choice of Inductor carries: a dictionary that the code which made it may fill."""

from __future__ import annotations

from typing import Any


def annotation_of(choice: Any, name: str) -> Any:
    """Return the annotation of this name; None where there is none. Choices of others may have no
    dictionary at all."""
    return (getattr(choice, "annotations", None) or {}).get(name)


def template_choice_of(choice: Any) -> Any:
    """Return the KernelTemplateChoice from which the choice was rendered; None where it was made in
    another way, such as another backend's kernels."""
    return annotation_of(choice, "ktc")

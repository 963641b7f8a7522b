"""A question of Inductor to its choices about a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Request(NamedTuple):
    """One call of Inductor's hook."""

    op_name: str
    kernel_inputs: Any  # Inductor's KernelInputs: the operands
    templates: Sequence[Any]  # Inductor's templates of kernels that it could use
    overrides: Mapping[str, Mapping[str, Any]] | None  # kwargs that Inductor sets, by template
    # Choices by template, in the templates' order: Inductor's generator, or the list that it made.
    offers: Mapping[str, Any]

"""What a choice asks of a source of candidates, and the class of those that Diode adds.

|           | Inductor's templates, the library's calls           | a `CandidateSource` |
|-----------|-----------------------------------------------------|---------------------|
| describes | the record in core/templates                        | the same            |
| offers    | `InductorChoices.get_ktc`                           | `offer`             |
| renders   | `choice_or_none`, for a KernelTemplateChoice        | the same            |
| is timed  | `kernels.launchable`, from what was rendered        | the same            |
| falls back | `Comparison.find_library`, where an operand moves  | and `fallback`      |

So a source is a template to Inductor, and is chosen from as any template.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.kernel_template_choice import (  # type: ignore[attr-defined]
    DictKernelTemplateParams,
    make_ktc_generator,
)
from torch._inductor.select_algorithm import ExternKernelChoice

from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.candidates import problem_of

log = logging.getLogger(__name__)

_NEWEST = (999, 0)  # a version of torch; no source asks for it
Kernel = Callable[..., Any]  # of the operands, `out`, and the op's other arguments (alpha, beta)


class CandidateSource(ABC):
    """The kernels of a record with `own` in the table of templates. Generated programs, also those
    from Inductor's cache, call `extern_kernels.<name>` with a kernel's parameters."""

    uid: str  # the record's name
    fallback: Kernel  # the library's call, such as torch.mm

    def __init__(self) -> None:
        self._extern = ExternKernelChoice(self.run, name=self.uid.replace("::", "_"))
        self._loaded: dict[tuple[Any, ...], Kernel] = {}

    @abstractmethod
    def load(self, **parameters: Any) -> Kernel:
        """Return the kernel with these parameters, before its first launch in a process. Raises any
        exception where it cannot run here; `fallback` is then called in its place."""

    def offer(self, op_name: str, parts: Mapping[str, Any], overrides: Any) -> Iterator[Any]:
        """Return a generator of KernelTemplateChoices, as InductorChoices.get_ktc does; the `parts`
        and the `overrides` of parameters are those of the library's choice."""
        params: Any = self._params(op_name, parts["inputs"])
        return make_ktc_generator(**{**parts, "template": self}, cs=params, overrides=overrides)

    def _params(self, op_name: str, inputs: Any) -> Iterator[Any]:
        problem, template = problem_of(inputs, op_name), template_of(self.uid)
        space = template.space_for(op_name)
        if problem is None or not space.offered(problem):
            return
        sizes = space.reach(*problem.one_group)
        configs = space.exhaustive_configs(*sizes)
        if config.max_autotune_gemm_search_space == "DEFAULT":
            configs = space.default_configs(*sizes, _NEWEST)
        for values in configs:
            yield DictKernelTemplateParams(dict(zip(template.parameters, values, strict=True)))

    def choice_or_none(self, *, input_nodes: Any, layout: Any, **given: Any) -> Any:
        """Return Inductor's ChoiceCaller of a call with the `given` parameters and arguments."""
        return self._extern.bind(input_nodes, layout, **given)

    def run(self, *operands: torch.Tensor, out: torch.Tensor, **given: Any) -> Any:
        """Launch a kernel, as generated programs do."""
        key = tuple(given.values())
        if key not in self._loaded:
            self._loaded[key] = self._load(given)
        return self._loaded[key](*operands, out=out)

    def _load(self, given: dict[str, Any]) -> Kernel:
        parameters = {name: given.pop(name) for name in template_of(self.uid).parameters}
        try:
            return partial(self.load(**parameters), **given)
        except Exception as error:  # noqa: BLE001  # whatever a library raises
            reason = f"{type(error).__name__}: {error}"
            log.warning("%s cannot run here, the library's call does: %s", self.uid, reason)
            return partial(self.fallback, **given)

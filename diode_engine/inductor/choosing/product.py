"""A product as Inductor asks for its kernels: the request, and the problems that it stands for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from diode_engine.choosing.frozen import ProductForm
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.choosing.stats import Fallback
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import Bias
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing.compile_options import is_batch_invariant
from diode_engine.inductor.choosing.dynamic import (
    describe_dynamic_sizes,
    draw_problems,
    is_aligned_when_compiled,
    may_exceed_32_bits,
)
from diode_engine.inductor.fusion.epilogue import Epilogue, current_epilogue
from diode_engine.inductor.lowering.candidates import (
    attributes_from,
    is_broadcast,
    problem_of,
    tf32_allowed,
)

Overrides = Mapping[str, Mapping[str, Any]] | None  # kwargs that Inductor sets, by template


@dataclass(frozen=True)
class Request:
    """One question of Inductor about the kernels of a product.

    `kernel_inputs` are Inductor's KernelInputs. `offers` has what each template offers: the
    generator of its choices, or the list of them once they were needed.
    """

    op_name: str
    kernel_inputs: Any
    overrides: Overrides
    offers: dict[str, Any]

    @cached_property
    def epilogue(self) -> Epilogue | None:
        """The epilogue of the product that is being lowered; None where it has none."""
        return current_epilogue(V.graph)

    def key(self, *, fusion: bool) -> Hashable | None:
        """Return everything that the choice depends on, besides the options; None where a size or a
        stride is dynamic, since a kernel may then depend on more than the hint. It takes a few
        microseconds: most products of a model were met before."""
        overrides, nodes = self.overrides, self.kernel_inputs.nodes()
        given = repr(overrides) if overrides and any(overrides.values()) else ""
        key = [
            self.op_name, tuple(self.offers), given, self.epilogue if fusion else None,
            self.kernel_inputs.out_dtype(), nodes[0].get_device(),
        ]  # fmt: skip
        try:
            for node in nodes:
                layout = node.get_layout()
                key.append(layout.dtype)
                if layout.dtype is torch.float32:
                    key.append(tf32_allowed())
                # To hash a sympy Integer runs Python code; to hash the int in it (`p`) does not.
                key += [x if type(x) is int else x.p for x in layout.size]
                key += [x if type(x) is int else x.p for x in layout.stride]
        except AttributeError:  # an expression with symbols has no `p`
            return None
        return tuple(key)


@dataclass(frozen=True)
class Product:
    """The problems of a product: first the one with the hints of its sizes, then, where a size is
    dynamic, others with other values of the size.

    `form` is what the product is in a file of frozen choices. `saved_us` is what fusing the
    epilogue saves for each. `is_timed` is False where no kernel was timed in this form: one matrix
    stands for a whole batch, Triton's code does not know how the rows are aligned, or a matrix may
    be too large for it (`may_exceed_32_bits`).
    """

    problems: tuple[Problem, ...]
    form: ProductForm
    saved_us: tuple[float, ...]
    is_timed: bool
    may_exceed_32_bits: bool

    @classmethod
    def read(
        cls,
        request: Request,
        hardware: Hardware,
        *,
        is_dynamic: bool,
        fusion: bool,
    ) -> Product:
        """Read the product that is asked for. `is_dynamic` says whether a size may be a symbol,
        `fusion` whether its epilogue counts. Raises LeftToStock where Diode has no such problem, or
        a size has no hint."""
        op_name, kernel_inputs = request.op_name, request.kernel_inputs
        sizes = (*kernel_inputs.shapes_symbolic(), *kernel_inputs.strides_symbolic())
        if is_dynamic and free_unbacked_symbols([x for each in sizes for x in each]):
            raise LeftToStock(Fallback.NO_HINT, "nothing is known about a dynamic size")
        problem = problem_of(kernel_inputs, op_name, request.overrides)
        if problem is None:
            raise LeftToStock(
                Fallback.UNSUPPORTED,
                f"{op_name} of {kernel_inputs.dtypes()} with sizes and strides {sizes} is no "
                "problem that Diode knows",
            )
        if problem.bias is Bias.SCALAR:  # plain's call of the library reads it as it is
            raise LeftToStock(
                Fallback.NO_PREDICTION, f"no kernel was timed with the bias of {problem}"
            )
        problems: tuple[Problem, ...] = (problem,)
        epilogue = request.epilogue if fusion else None
        form = _first_form(form_of(problem, kernel_inputs, epilogue))
        is_timed, too_large = not is_broadcast(kernel_inputs, op_name), False
        if is_dynamic:
            too_large = may_exceed_32_bits(kernel_inputs)
            attributes = attributes_from(op_name, request.overrides)
            problems = draw_problems(
                kernel_inputs, op_name, problem, attributes, doubling=is_batch_invariant()
            )
            is_timed &= not too_large and is_aligned_when_compiled(kernel_inputs, op_name)
        saved = [epilogue.saved_us(p, hardware) if epilogue else 0.0 for p in problems]
        return cls(problems, form, tuple(saved), is_timed, too_large)


def form_of(problem: Problem, kernel_inputs: Any, epilogue: Epilogue | None) -> ProductForm:
    """Return the form of a product with these KernelInputs of Inductor."""
    dynamic = describe_dynamic_sizes(kernel_inputs, str(problem.op))
    return ProductForm(problem, str(epilogue or ""), dynamic, is_batch_invariant())


def _first_form(form: ProductForm) -> ProductForm:
    """Return the form in which the op asked first: addmm asks again with its bias as a matrix."""
    p, asked = form.problem, V.graph.__dict__.setdefault("_diode_forms", {})
    matrices = V.graph.current_node, p.op, p.B, p.M, p.N, p.K, p.a, p.b
    first: ProductForm = asked.setdefault(matrices, form)
    return first

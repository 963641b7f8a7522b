"""A kernel class rendered by Inductor's own template code, with symbols for its sizes.

A size that is not fixed is written as its multiple times a symbol (K = 64·s), and strides
follow from the sizes, so that Triton sees the divisibility that it sees in the constants of a
kernel compiled for one problem.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._inductor.codecache import PyCodeCache
from torch._inductor.select_algorithm import TritonTemplateCaller
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from diode_engine.core.operand import Layout
from diode_engine.core.operators.specification import TensorShape
from diode_engine.core.templates import template_of
from diode_engine.core.templates.template import Template
from diode_engine.errors import IntegrationError
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.binary import Binary, binary_of
from diode_engine.inductor.lowering.kernel_class import ALL_FIXED, DIMS, TF32_SIZES, KernelClass
from diode_engine.inductor.patches import patch_attribute

# About the example value of a size that is a symbol: large, so that nothing is simplified because
# a size is small, and small enough for 32-bit indices.
_EXAMPLE_SIZE = 1200
_ONES = dict.fromkeys(DIMS, 1)


@dataclass(frozen=True)
class Rendered:
    """A kernel as Inductor has written it, not compiled yet.

    `arguments` names the launch arguments in order: the op's inputs ("a", "b", …) and "out"; for
    each symbol "size_K" and the like, which is the size divided by the class's multiple; and
    "workspace", which TMA kernels take and do not use. `autotuner` compiles it.
    """

    source: str
    name: str
    arguments: tuple[str, ...]
    autotuner: Any

    def compile(self) -> Binary:
        """Compile it for the current (or pretended) device and loads nothing. Raises whatever
        Triton raises."""
        self.autotuner.precompile(warm_cache_only=True)
        return binary_of(self.autotuner.compile_results[0].kernel, self.arguments)


class Family:
    """Renders kernel classes that differ only in the kwargs of their candidates; see `family`."""

    def __init__(self, key: str, choice: Any, examples: Mapping[str, int]) -> None:
        self._key = key
        self._choice = choice
        self._examples = examples

    def render(self, cls: KernelClass) -> Rendered:
        """Return the kernel of a class. Raises IntegrationError where the template declines the
        config or the class is of another family, and whatever else rendering raises."""
        if cls.family != self._key:
            raise IntegrationError(f"{cls.candidate} is of another family.")
        choice = self._choice
        kwargs = {**choice.params.to_kwargs(), **cls.candidate.config}
        if "EVEN_K" in kwargs:
            kwargs["EVEN_K"] = cls.even_k
        caller = choice.template.choice_or_none(
            **kwargs,
            **choice.extra_kwargs,
            layout=choice.layout,
            input_nodes=choice.inputs.nodes(),
        )
        if not isinstance(caller, TritonTemplateCaller):
            raise IntegrationError(f"Inductor's template declines {cls.candidate}.")
        request = caller.bmreq
        written = Path(request.module_path).read_text()
        module = PyCodeCache.load(_decided(written, cls))
        autotuner = getattr(module, request.kernel_name)
        return Rendered(
            source=autotuner.fn.src,
            name=request.kernel_name,
            arguments=_arguments(
                template_of(cls.candidate.template),
                tuple(_operand_shapes(cls, _ONES)),
                autotuner.fn.arg_names,
                [*request.extra_args],
                self._examples,
            ),
            autotuner=autotuner,
        )


def _decided(source: str, cls: KernelClass) -> str:
    """Return the source, with the condition of the template's `if` (whether the rows and columns of
    a block are contiguous) replaced by its value. With constants, Triton computes the value when it
    compiles. With symbols it would compile both branches, and could only use what holds after both.
    Raises IntegrationError where the template's condition does not have the form that Diode
    knows."""
    if cls.fixed == ALL_FIXED or not template_of(cls.candidate.template).asks_contiguous:
        return source
    for name, operand, inner, block, whole in (
        ("a", cls.a, cls.K if cls.a.layout is Layout.ROW else cls.M, "BLOCK_M", cls.whole_m),
        ("b", cls.b, cls.N if cls.b.layout is Layout.ROW else cls.K, "BLOCK_N", cls.whole_n),
    ):
        asked = re.findall(rf"^    if (\(?\(stride_{name}.*):$", source, re.MULTILINE)
        if len(asked) != 1:
            raise IntegrationError("Inductor's template is not the one that Diode knows.")
        question = asked[0]
        size = inner.value
        answer = not inner.fixed or operand.leading_stride(size, size) == size
        if block in question:  # not in bmm's until torch 2.12
            answer = answer and whole and not (cls.K.fixed and cls.K.value == 1)
        source = source.replace(f"    if {question}:", f"    if {answer}:")
    return source


def _arguments(
    template: Template,
    inputs: Sequence[str],
    own_names: Sequence[str],
    extra_args: Sequence[Any],
    examples: Mapping[str, int],
) -> tuple[str, ...]:
    """Return what each of a kernel's arguments is (see `Rendered.arguments`). `own_names` are the
    names in the kernel's source; an input that the template does not name is "in_ptr" and its index
    in `inputs`. `extra_args` begins with the symbols' example values, in the order in which the
    kernel takes them."""
    by_example = {value: f"size_{dim}" for dim, value in examples.items()}
    known = template.arguments
    sizes = iter(extra_args)
    names = []
    for name in own_names:
        if name in known:
            names.append(known[name])
        elif name.startswith("in_ptr"):
            names.append(inputs[int(name.removeprefix("in_ptr"))])
        elif name.startswith("ks"):
            names.append(by_example[int(next(sizes))])
        else:
            raise IntegrationError(
                f"Inductor's kernel has an argument {name} that Diode does not know."
            )
    return tuple(names)


@contextlib.contextmanager
def family(cls: KernelClass, device: torch.device) -> Iterator[Family]:
    """While it is open, the inputs from which all classes of `cls`'s family are rendered. Raises
    IntegrationError where Inductor does not offer the template for them."""
    shape_env = ShapeEnv()
    sizes: dict[str, Any] = {}
    symbols: dict[str, sympy.Symbol] = {}
    examples = _examples(cls)
    for dim, extent in cls.extents.items():
        if extent.fixed:
            sizes[dim] = extent.value
            continue
        symbols[dim] = shape_env.create_symbol(
            examples[dim],
            source=ConstantSource(dim),
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None,
        )
        sizes[dim] = extent.value * symbols[dim]
        if cls.tf32_sized and dim in TF32_SIZES:
            least = -(-TF32_SIZES[dim] // extent.value)
            shape_env.constrain_symbol_range(symbols[dim], least, 2**31 - 1)
    shapes = _operand_shapes(cls, sizes)
    values = {symbol: examples[dim] for dim, symbol in symbols.items()}

    def examples_of(expressions: Sequence[Any]) -> list[int]:
        return [int(sympy.sympify(e).xreplace(values)) for e in expressions]

    with (
        kernels.graph(shapes, device, allow_tf32=cls.allow_tf32, shape_env=shape_env) as operands,
        # Inductor makes sizes constant to decide whether TMA can be used; here it gets examples.
        patch_attribute(V.graph.sizevars, "guard_int_seq", examples_of),
    ):
        found = kernels.offered(cls.op, operands, fields=cls.op_fields, space="DEFAULT")
        for candidate, choice in found.items():
            if candidate.template == cls.candidate.template:
                yield Family(cls.family, choice, examples)
                return
        raise IntegrationError(
            f"Inductor does not offer {cls.candidate.template} for operands like these."
        )


def _examples(cls: KernelClass) -> dict[str, int]:
    """Return an example value for the symbol of each size that is not fixed. They differ, since it
    is by its value that a symbol is found again among a kernel's arguments, and are odd, so that
    the sizes are as divisible as the class says and no more."""
    examples: dict[str, int] = {}
    for dim, extent in cls.extents.items():
        if not extent.fixed:
            value = 3 if dim == "B" else _EXAMPLE_SIZE // extent.value | 1
            while value in examples.values():
                value += 2
            examples[dim] = value
    return examples


def _operand_shapes(cls: KernelClass, sizes: Mapping[str, Any]) -> dict[str, TensorShape]:
    """The op's inputs by name."""
    operands = {"a": cls.a, "b": cls.b}
    shapes = cls.op.input_shapes(sizes, cls.dtype, cls.op_fields, operands)
    return {
        name: TensorShape(tuple(map(sympy.sympify, size)), tuple(map(sympy.sympify, stride)), dtype)
        for name, (size, stride, dtype) in shapes.items()
    }

"""Inputs without data in the form that autograd and Inductor of torch 2.10 require."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch._guards import TracingContext
from torch._inductor import compile_fx
from torch._subclasses.fake_tensor import FakeTensor

from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.torch_internals import versions


@contextlib.contextmanager
def inputs_of_one_mode() -> Iterator[None]:
    """For torch 2.10, whose Inductor requires inputs of the mode with which Dynamo has traced.
    Later versions convert them."""
    if versions.converts_inputs_without_data():
        yield
        return
    compile_graph = compile_fx.compile_fx

    def converted(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return compile_graph(graph, of_one_mode(inputs), *args, **kwargs)

    with patch_attribute(compile_fx, "compile_fx", converted):
        yield


def of_one_mode(inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs of a backend of torch.compile: with torch 2.10 converted to the mode with which
    Dynamo has traced, if it is tracing."""
    context = TracingContext.try_get()
    if versions.converts_inputs_without_data() or context is None:
        return inputs
    return [_converted(each, context) for each in inputs]


def _converted(value: Any, context: TracingContext) -> Any:
    mode = context.fake_mode
    if mode is None or not isinstance(value, FakeTensor) or value.fake_mode is mode:
        return value
    symbolic = context.tensor_to_context.get(value)
    source = getattr(symbolic, "tensor_source", None)
    return mode.from_tensor(value, symbolic_context=symbolic, source=source)

"""Several kernels for one product, of which the generated program takes one by the number of rows:
`(kernel_0 if s0 <= 64 else kernel_1).run(…)`.

Inductor has kernels for several sizes too (SizeHintMultiKernel, by config.multi_kernel_hints). That
way is not taken: such a call takes the host 13 µs longer than that of one kernel, against 0.1 µs
here; all dynamic sizes of a product get the same hint; and it is the search that makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch._inductor import config
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.virtualized import V

from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import GENERATES_TEMPLATE, KERNEL_CALL

_BRANCHES = "_diode_branches"
_GENERATES = "_diode_generates_branches"


@dataclass(frozen=True)
class Branch:
    """A rendered choice of Inductor that is taken for up to `most_rows` rows that no branch before
    it has; None where there is no limit."""

    choice: Any
    most_rows: int | None


def can_generate() -> bool:
    """Return whether the program that is being lowered can have branches: it is in Python, and
    Diode has wrapped the function that generates it."""
    graph: Any = V.graph
    return hasattr(getattr(TritonScheduling, GENERATES_TEMPLATE), _GENERATES) and not (
        graph.cpp_wrapper
        or graph.aot_mode
        or part(config, "fx_wrapper")
        or config.triton.autotune_at_compile_time
    )


def mark(generates: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function by which Diode wraps Inductor's, marked so that `can_generate` finds
    it."""
    setattr(generates, _GENERATES, True)
    return generates


def attach(branches: Sequence[Branch], choice: Any) -> None:
    """Have the program take one of the branches, which are for the fewest rows first, where
    Inductor takes the rendered `choice`."""
    # Of a choice this function is all that Inductor passes on to its scheduler.
    setattr(choice.make_kernel_render, _BRANCHES, tuple(branches))


def find_branches(node: Any) -> Sequence[Branch]:
    """Return the branches of a node of the scheduler; () where it has none."""
    render = getattr(node.node, "make_kernel_render", None)
    branches: Sequence[Branch] = getattr(render, _BRANCHES, ())
    return branches


def generate(node: Any, branches: Sequence[Branch], generate_one: Callable[[], Any]) -> None:
    """Generate the kernels of a node's branches, and the call of one of them. `generate_one`
    generates one kernel and its call, as Inductor does."""
    buffer, lines = node.node, V.graph.wrapper_code.lines
    own, calls = buffer.make_kernel_render, list[Any]()
    place, call = 0, getattr(wrapper, KERNEL_CALL)
    try:
        for branch in branches:
            buffer.make_kernel_render = branch.choice.make_kernel_render
            before = len(lines)
            generate_one()
            (found,) = [i for i in range(before, len(lines)) if isinstance(lines[i], call)]
            # What a call reads may be freed behind the first one.
            place = place if calls else found
            calls.append(lines[found] if not calls else lines.pop(found))
        lines[place] = _join(calls, branches, buffer.get_size()[-2])
    except Exception:
        lines[:] = [line for line in lines if all(line is not each for each in calls)]
        raise
    finally:
        buffer.make_kernel_render = own


def _join(calls: Sequence[Any], branches: Sequence[Branch], rows: Any) -> Any:
    """Return the call of one of several kernels with the same arguments but for the grid, by the
    number of rows, a size of Inductor's."""
    write: Callable[..., list[str]] = V.graph.wrapper_code.prepare_triton_kernel_call
    (size,) = write([rows])

    def select(texts: Sequence[str]) -> str:
        if len(set(texts)) == 1:
            return texts[0]
        first = [
            f"{text} if {size} <= {branch.most_rows} else"
            for text, branch in zip(texts[:-1], branches[:-1], strict=True)
        ]
        return f"({' '.join([*first, texts[-1]])})"

    arguments = zip(*(write(call.call_args) for call in calls), strict=True)
    return replace(
        calls[0],
        kernel_name=select([call.kernel_name for call in calls]),
        call_args=[select(texts) for texts in arguments],
    )

"""The products of a program, by Inductor's own lowering without generating code."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import torch
from harvest_models.programs import Program
from measuring import MAX_AUTOTUNE
from torch._dynamo.utils import detect_fake_mode
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering
from zoo_lowering import _SETTINGS, _captured, _on_gpu, _timed, _traced
from zoo_ways import WAYS

from diode_engine.core.hardware import H200
from diode_engine.core.operators import OPERATORS
from diode_engine.inductor import without_gpu
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.patches import patch_attribute

Asked = dict[str, Any]

# As max-autotune lowers, where convolutions of 1×1 are products. Only the library's kernels are
# made, which halves the time.
_AUTOTUNE = {**MAX_AUTOTUNE, "max_autotune_conv_backends": "ATEN"}
_OPTIONS = {**_SETTINGS, **_AUTOTUNE, "max_autotune_gemm_backends": "ATEN"}


class _Known(BaseException):
    """Raised when all kernels of a graph are known. It is no Exception, because Inductor would
    replace that by one of its own."""


def products(program: Program, batch: int | None = None) -> tuple[int, list[Asked], list[str]]:
    """(the batch that was traced; the products that the program asks kernels for, forward and then
    backward; those of them for which Diode has no problem). `batch` is as Program.in_zoo takes
    it."""
    without_gpu.pretend(H200)
    torch.set_float32_matmul_precision("highest")
    asked: dict[str, Asked] = {}
    left_out: dict[str, None] = {}

    def record(_watch: Any, inputs: Any, op: str, _overrides: Any) -> None:
        if op not in OPERATORS:
            return
        try:
            given = [str(dtype).removeprefix("torch.") for dtype in inputs.dtypes()]
            found = {
                "op": op,
                "shapes": [list(map(int, s)) for s in inputs.shapes_hinted()],
                "strides": [list(map(int, s)) for s in inputs.strides_hinted()],
                "dtypes": given,
                "out_dtype": str(inputs.out_dtype()).removeprefix("torch."),
            }
        except Exception as error:  # noqa: BLE001
            left_out[f"{op}: {type(error).__name__}: {error}"[:300]] = None
        else:
            asked[json.dumps(found)] = found

    model, taken = program.in_zoo(batch)
    with (
        patch_attribute(ProductNotes, "_note_product", record),
        WAYS["plain"].installed(),
        _captured([]),
        torch._dynamo.config.patch(specialize_float=True),
    ):
        torch._dynamo.reset()
        graphs = _traced(model)
        torch._dynamo.reset()
        with without_gpu.lowering(_OPTIONS), _timed(), torch.no_grad(), _no_code():
            for graph in graphs:
                with detect_fake_mode(graph.inputs) or contextlib.nullcontext():
                    moved = _on_gpu(graph)
                    with contextlib.suppress(_Known):
                        compile_fx(*moved)
    return taken[-1], list(asked.values()), list(left_out)


def _no_code() -> Any:
    """Stops Inductor where it knows all kernels and would generate code."""

    def stop(_: Any) -> None:
        raise _Known

    return patch_attribute(GraphLowering, "compile_to_module", stop)

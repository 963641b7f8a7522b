"""FlexAttention's configs are chosen by what the call is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.exc import LoweringException
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import diode_engine
from diode_engine.choosing.outcomes import FLEX_CALLS, Outcomes
from diode_engine.core.hardware import H200
from diode_engine.errors import ModelError
from diode_engine.inductor.choosing import trace
from diode_engine.inductor.lowering.flex_attention import Unmeasured, call_of
from diode_engine.inductor.patches import patch_attribute
from diode_engine.models import flex_attention as fa
from tests.inductor_nogpu import conftest, flex_graph

# No default of Inductor's, and none of max-autotune's.
WANTED = {"forward": (64, 32, 4, 4), "backward": (32, 64, 64, 32, 4, 4), "decoding": (32, 4, 4)}
NAMES = {
    "forward": ("BLOCK_M", "BLOCK_N"),
    "backward": ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2"),
    "decoding": ("BLOCK_N",),
}


def table(speed: float = 1.5, **defaults: tuple[int, ...]) -> fa.FlexTable:
    """One by which the wanted configs are so many times as fast as the default."""
    shipped = fa.table_for(H200)
    groups = []
    for group in shipped.groups:
        configs = (WANTED[group.kind],)
        speeds = np.full((len(group.calls), 1), speed)
        default = defaults.get(group.kind, group.default)
        groups.append(replace(group, configs=configs, speeds=speeds, default=default))
    return replace(shipped, groups=tuple(groups))


@pytest.fixture
def install(monkeypatch):
    """Installs Diode with a table."""

    def installed(by, **options):
        monkeypatch.setattr("diode_engine.inductor.choosing.flex_attention.table_for", lambda _: by)
        conftest.install(conftest.FixedPredictor(), **options)

    return installed


Change = Callable[[torch.fx.Node], None]  # of the call, before it is lowered
MASK, OPTIONS = 4, 6  # places among a forward call's arguments


@contextlib.contextmanager
def graph_of(
    *, change: Change | None = None, **call: Any
) -> Iterator[tuple[Any, torch.fx.Node, list[Any]]]:
    """Inductor's lowering of a call, which is open, the call's node and its inputs."""
    shape_env = ShapeEnv()
    graph, inputs, mode = flex_graph.program(flex_graph.Call(**call), shape_env)
    (node,) = [n for n in graph.graph.nodes if n.op == "call_function"]
    if change is not None:
        change(node)
    lowering = GraphLowering(graph, inputs, shape_env=shape_env)
    with (
        V.set_graph_handler(lowering),
        V.set_fake_mode(mode),
        V.set_debug_handler(DebugContext()),
    ):
        yield lowering, node, inputs


def left(options: dict[str, Any] | None = None, **call: Any) -> list[Any]:
    """The choices that Inductor is left with for a call."""
    found: list[Any] = []

    class Enough(Exception):
        pass

    def capture(_: str, choices: list[Any], *__: Any, **___: Any) -> None:
        found.extend(choices)
        raise Enough

    with contextlib.ExitStack() as stack:
        for name in ("flex_attention", "flex_decoding"):
            module = import_module(f"torch._inductor.kernel.flex.{name}")
            stack.enter_context(patch_attribute(module, "autotune_select_algorithm", capture))
        stack.enter_context(config.patch(options or {"max_autotune": True}))
        lowering, _, inputs = stack.enter_context(graph_of(**call))
        with contextlib.suppress(Enough, LoweringException):
            lowering.run(*inputs)
    return found


def config_of(choice: Any) -> tuple[int, ...]:
    """What it says of itself."""
    said = dict(part.split("=", 1) for part in choice.description.split(", ") if "=" in part)
    names = next(n for n in NAMES.values() if all(name in said for name in n))
    return tuple(int(said[name]) for name in (*names, "num_stages", "num_warps"))


def stats() -> tuple[int, int, int]:
    """Chosen, passed, failed."""
    found = diode_engine.get_stats()
    return (
        int(found["flex_decided"]), int(found["passed_flex_attention"]), int(found["fallbacks"]),
    )  # fmt: skip


DECODING = {
    "kind": "decoding", "mask": "dense", "head": 128, "heads": 32, "kv_heads": 8, "length": 4096,
    "batch": 16,
}  # fmt: skip
CALLS: dict[str, dict[str, Any]] = {
    "forward": {},
    "forward, dense": {"mask": "dense"},
    "forward, documents": {"mask": "document"},
    "forward, grouped": {"head": 128, "heads": 32, "kv_heads": 8, "mask": "window"},
    "forward, float16": {"dtype": "float16"},
    "forward, symbols": {"length": None},
    "backward": {"kind": "backward", "mask": "causal"},
    "backward, dense": {"kind": "backward", "mask": "dense"},
    "decoding": DECODING,
}


AS_IN_2_11 = pytest.mark.skipif(
    torch.__version__ < (2, 11),
    reason="torch 2.10 calls the backward pass with other arguments, and its default for decoding "
    "is another than was measured",
)


@pytest.mark.parametrize(
    "call", [c if c.startswith("forward") else pytest.param(c, marks=AS_IN_2_11) for c in CALLS]
)
def test_the_chosen_config_alone_is_rendered(call, install):
    install(table())
    (choice,) = left(**CALLS[call])
    kind = call.split(",")[0]
    wanted = WANTED[kind]
    source = Path(choice.bmreq.module_path).read_text()
    for name, value in zip(NAMES[kind], wanted, strict=False):
        assert f"{name} : tl.constexpr = {value}" in source
    assert f"num_stages={wanted[-2]}" in source
    assert f"num_warps={wanted[-1]}" in source
    assert stats() == (1, 0, 0)


def _options(**given: Any) -> Change:
    def change(node: torch.fx.Node) -> None:
        args = list(node.args)
        args[OPTIONS] = {**args[OPTIONS], **given}
        node.args = tuple(args)

    return change


def _blocks(node: torch.fx.Node) -> None:
    args = list(node.args)
    around: Any = args[MASK]
    args[MASK] = (*around[:-3], 256, 256, around[-1])
    node.args = tuple(args)


def _scores(node: torch.fx.Node) -> None:
    module = node.graph.owning_module
    score = module.get_submodule("score")
    *_, output = score.graph.nodes
    first = next(iter(score.graph.nodes))
    with score.graph.inserting_before(output):
        changed = score.graph.call_function(torch.ops.aten.mul.Tensor, (first, 2.0))
    output.args = ((changed,),) if isinstance(output.args[0], tuple) else (changed,)


def _reads(*size: int, count: int = 1) -> Change:
    def change(node: torch.fx.Node) -> None:
        (read,) = node.args[-1]
        if size:
            read.meta["val"] = read.meta["val"].new_empty(size)
        node.args = (*node.args[:-1], (read,) * count)

    return change


def _query(*size: int) -> Change:
    def change(node: torch.fx.Node) -> None:
        query: Any = node.args[0]
        query.meta["val"] = query.meta["val"].new_empty(size)

    return change


UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "a length that is no multiple": ({"length": 2000, "mask": "dense"}, "no multiple of 128"),
    "fewer queries": ({"change": _query(2, 16, 1024, 64)}, "not equally many"),
    "blocks of the mask": ({"change": _blocks}, "blocks of 256 × 256"),
    "a mask that reads a matrix": (
        {"mask": "document", "change": _reads(2, 2048)}, "several dimensions"),
    "a mask that reads two": ({"mask": "document", "change": _reads(count=2)}, "several tensors"),
    "a score_mod": ({"change": _scores}, "score_mod"),
    "decoding several tokens": ({**DECODING, "change": _query(16, 32, 4, 128)}, "several tokens"),
    "a block of the program's": ({"change": _options(BLOCK_M=64)}, "kernel_options .BLOCK_M"),
    "warps of the program's": ({"change": _options(fwd_num_warps=8)}, "kernel_options"),
    "scaling first": ({"change": _options(PRESCALE_QK=True)}, "kernel_options"),
    "another backend": ({"change": _options(BACKEND="FLASH")}, "kernel_options"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "why"), UNLIKE.values(), ids=UNLIKE)
def test_a_call_unlike_those_that_were_measured_is_told(call, why):
    kind = call.get("kind", "forward")
    with graph_of(**call) as (_, node, _), pytest.raises(Unmeasured, match=why):
        call_of(kind, node)


def test_what_a_call_is():
    with graph_of(mask="document", heads=32, kv_heads=8) as (_, node, _):
        assert call_of("forward", node) == fa.FlexCall(
            "forward", 64, "bfloat16", 64, 2048, masked=True, reads=True
        )
    with graph_of(**DECODING) as (_, node, _):
        found = call_of("decoding", node)
        assert found == fa.FlexCall("decoding", 128, "bfloat16", 512, 4096, False, False)
        with pytest.raises(Unmeasured, match="outside of a call"):
            call_of("backward", node)


LEFT = {
    "a head size": {"head": 96},
    "a type": {"dtype": "float32"},
    "a type of decoding": {**DECODING, "dtype": "float16"},
    "a far longer call": {"length": 1 << 19, "batch": 1},
    "the program's options": {"change": _options(num_warps=8)},
}


@pytest.mark.parametrize("given", LEFT)
def test_what_was_not_measured_is_as_without_diode(given, install):
    call: Any = LEFT[given]
    install(table())
    with_diode = [config_of(choice) for choice in left(**call)]
    assert stats() == (0, 1, 0)
    diode_engine.uninstall_diode_choices()
    assert with_diode == [config_of(choice) for choice in left(**call)]
    assert len(with_diode) > 1
    if given == "the program's options":
        assert {config[-1] for config in with_diode} == {8}


def test_inductors_default_is_taken_without_a_benchmark_where_nothing_is_faster(install):
    install(table(speed=1.01))
    (choice,) = left()
    assert config_of(choice) == (128, 128, 3, 4)
    assert stats() == (1, 0, 0)


def test_another_default_than_was_measured_leaves_inductors(install):
    install(table(forward=(128, 64, 3, 4)))
    assert len(left()) > 1
    assert stats() == (0, 1, 0)


def test_a_config_that_inductor_does_not_offer_is_not_taken(install, monkeypatch):
    monkeypatch.setitem(WANTED, "forward", (64, 48, 4, 4))
    install(table())
    assert len(left()) > 1
    assert stats() == (0, 1, 0)


def test_speeds_that_are_no_numbers_leave_inductors(install, caplog):
    by = table()
    install(by)
    for group in by.groups:
        group.speeds[:] = np.nan
    configs = [config_of(choice) for choice in left()]
    assert len(configs) > 1
    assert WANTED["forward"] not in configs
    assert stats() == (0, 0, 1)
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("Diode makes no choice for calls of FlexAttention: ")


def test_that_a_call_failed_does_not_hide_that_a_product_did(caplog):
    outcomes = Outcomes(enable_fallback=True)
    for _ in range(2):
        outcomes.report_failure("a call failed", ArithmeticError("made up"), FLEX_CALLS)
        outcomes.report_failure("a product failed", ArithmeticError("made up"))
    calls, products = [r.getMessage() for r in caplog.records]
    assert "FlexAttention" in calls
    assert "a product failed" in products
    assert outcomes.stats.snapshot()["fallback_error"] == 4


def test_a_damaged_table_leaves_inductors(monkeypatch):
    def damaged(_):
        raise ModelError("It is damaged.")

    monkeypatch.setattr("diode_engine.inductor.choosing.flex_attention.table_for", damaged)
    conftest.install(conftest.FixedPredictor())
    assert len(left()) > 1
    assert diode_engine.get_stats()["active"]


@pytest.mark.skipif(
    not hasattr(config, "batch_invariant"), reason="torch before 2.15 has no such option"
)
def test_it_does_not_act_where_the_batch_must_not_matter(install):
    install(table())
    fast = {"max_autotune": False, "fast_autotune": True}
    (chosen,), (stock,) = left(fast), left({**fast, "batch_invariant": True})
    assert config_of(chosen) == WANTED["forward"]
    assert config_of(stock) == (128, 128, 3, 4)


def test_it_acts_where_diode_acts_on_products(install):
    install(table())
    (usual,) = left({"max_autotune": False})
    assert config_of(usual) == (128, 128, 3, 4)
    assert stats() == (0, 0, 0)
    (fast,) = left({"max_autotune": False, "fast_autotune": True})
    assert config_of(fast) == WANTED["forward"]
    diode_engine.uninstall_diode_choices()
    assert len(left()) > 1


def test_the_log_names_the_call_and_its_config(install, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(trace.log, "isEnabledFor", lambda _: True)
    monkeypatch.setattr(trace.log, "debug", lambda form, *args: lines.append(form % args))
    install(table())
    left()
    install(table(speed=1.0))
    left()
    call = "Diode: flex_attention forward 32 heads of 64 × 2048 bfloat16: "
    assert lines == [
        f"{call}block_m=64 block_n=32 num_stages=4 num_warps=4; 1.50 × the default's speed",
        f"{call}block_m=128 block_n=128 num_stages=3 num_warps=4; Inductor's default",
    ]


@AS_IN_2_11
def test_the_shipped_table_chooses(install):
    install(fa.table_for(H200))
    (forward,) = left(head=128, heads=32, kv_heads=8)
    (decoding,) = left(**DECODING)
    (backward,) = left(kind="backward")
    assert config_of(forward) == (64, 64, 3, 4)
    assert config_of(decoding)[1] >= 3  # stages; Inductor's default has one
    assert config_of(backward) != (64, 128, 128, 64, 3, 8)
    assert stats() == (3, 0, 0)

"""Every function of Diode that torch calls is guarded: what Diode cannot answer, torch answers."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config, decomposition, lowering, virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.fx_passes import joint_graph, pad_mm, post_grad
from torch._inductor.select_algorithm import get_algorithm_selector_cache

import diode_engine
from diode_engine.choosing.policy import Comparison
from diode_engine.inductor import guard as guard_module
from diode_engine.inductor import on_import
from diode_engine.inductor.choosing.flex_attention import FlexChooser
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.hook import (
    activations,
    convolutions,
    fast_autotune,
    grouped_products,
    library_algorithms,
    mm_plus_mm,
    options,
    shape_padding,
)
from diode_engine.inductor.hook import choices as choices_module
from diode_engine.inductor.hook.choices import DiodeInductorChoices
from diode_engine.inductor.hook.installation import INSTALLATION
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.listening import feedback
from diode_engine.inductor.lowering import preprocessing
from diode_engine.inductor.torch_internals.dispatcher import PRODUCT_WITH_ACTIVATION
from tests.inductor_nogpu.conftest import FAST, FixedPredictor, empty, install, program
from tests.inductor_nogpu.test_convolutions import convolution
from tests.inductor_nogpu.test_faults import LIBRARY, mm, searched
from tests.inductor_nogpu.test_flex_attention import DECODING, config_of
from tests.inductor_nogpu.test_flex_attention import left as flex_choices
from tests.inductor_nogpu.test_grouped import experts

PACKAGE = Path(diode_engine.__file__).parent


def flex(**call: Any) -> list[tuple[int, ...]]:
    configs = [config_of(choice) for choice in flex_choices(**call)]
    assert configs, "the lowering has raised"  # which flex_choices does not pass on
    return configs


def groups() -> str:
    """A product of groups; nothing may be benchmarked for it."""
    return program(experts())


def sums() -> Any:
    """A sum of two products, which one lowering computes."""
    return (lambda a, b: a @ b + b @ a), (empty(256, 256),) * 2


def convolved() -> bool:
    """Whether a convolution has become a product, as max-autotune has it."""
    return "extern_kernels.convolution(" not in searched(convolution(torch.bfloat16))


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch):
    monkeypatch.setattr(guard_module, "_logged", set())


def padding() -> bool:
    with config.patch(max_autotune=True):
        return bool(pad_mm._should_pad(None, None, None, torch.ops.aten.mm))


def fresh_thread() -> str:
    with INSTALLATION.lock:
        if INSTALLATION.snapshot()[1]:
            INSTALLATION._take_slot()  # threads ask again
    return searched(mm)


class Faults:
    """Raises the error, when it is called or searched, and counts how often."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.count = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.count += 1
        raise self.error

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self  # as a method

    def __contains__(self, _: object) -> bool:
        return bool(self())


@dataclass(frozen=True)
class Case:
    """What of Diode's runs in a function that torch calls, and a program in which torch does."""

    owner: Any
    name: str
    run: Callable[[], Any]
    expected: Callable[[], Any] | None = None  # gives the result; None: what torch does by itself


def library_mm() -> str:
    return program(mm, **LIBRARY)


def library_groups() -> str:
    return program(experts(), **LIBRARY)


# By the name of the function that torch calls, and what else is said of the case.
CASES = {
    "get_template_configs": Case(preprocessing, "add", lambda: program(mm), library_mm),
    "get_template_configs, of a graph": Case(
        ProductChooser, "_options_and_memory", lambda: program(mm), library_mm
    ),
    "get_flex_attention_fwd_configs": Case(FlexChooser, "_chosen", flex),
    "get_flex_attention_bwd_configs": Case(
        FlexChooser, "configs", lambda: flex(kind="backward", mask="causal")
    ),
    "get_flex_decode_configs": Case(FlexChooser, "_chosen", lambda: flex(**DECODING)),
    "final_choice": Case(Comparison, "join", groups, library_groups),
    "convert_1x1_conv_to_mm": Case(convolutions, "_should_keep", convolved),
    "convert_1x1_conv_to_mm, predicted": Case(convolutions, "choose_outside_graph", convolved),
    "lowerings": Case(fast_autotune, "_chooser_for", lambda: program(mm, **FAST)),
    "lowerings, of an activation in a product": Case(
        activations,
        "current_chooser",
        lambda: program(lambda: (PRODUCT_WITH_ACTIVATION, (empty(256), *[empty(256, 256)] * 2))),
    ),
    "tuned_mm_plus_mm": Case(fast_autotune, "_chooser_for", lambda: program(sums, **FAST)),
    "_tuned_grouped_mm_common": Case(grouped_products, "_find_product", groups, library_groups),
    "early_config_prune": Case(ProductChooser, "choose_listed", groups, library_groups),
    "autotune_select_algorithm": Case(
        grouped_products._Product, "annotate", groups, library_groups
    ),
    "_should_pad": Case(shape_padding, "_decide", padding),
    "post_grad_passes": Case(activations, "_is_wanted", library_mm),
    "output_node": Case(library_algorithms, "current_chooser", library_mm),
    "_default": Case(DiodeInductorChoices, "over", fresh_thread),
    "_use_autotune_backend": Case(options, "_STANDS_FOR", library_mm),
}
# These have tests of their own.
BESIDE = {
    "can_fuse_vertical", "uuid", "diode_state", "save", "prefer_aten", "_finalize_template_configs",
    "_need_to_fix_layout", "mm_plus_mm", "decompositions", "codegen_template", "bmm_to_mm",
}  # fmt: skip
# These run inside the guard of another function, which asks for the product again: of
# `get_template_configs`, and of `_tuned_grouped_mm_common`.
GUARDED_OUTSIDE = {
    "_finalize_template_configs", "early_config_prune", "autotune_select_algorithm",
}  # fmt: skip


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.name.startswith("diode_engine")]
    return [line for line in found if "INFO" not in line]


if torch.__version__ < (2, 11):  # it times padding elsewhere, and calls that pass otherwise
    del CASES["_should_pad"], CASES["get_flex_attention_bwd_configs"]
    BESIDE.add("get_flex_attention_bwd_configs")


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    if hasattr(pad_mm, "_should_pad"):  # Inductor's own answer on padding needs no device
        monkeypatch.setattr(pad_mm, "_should_pad", lambda *_: True)
    return CASES[request.param]


def test_where_diode_fails_torch_answers(case, monkeypatch, caplog):
    fault = Faults(MemoryError("full"))
    expected = (case.expected or case.run)()
    install(FixedPredictor())
    monkeypatch.setattr(case.owner, case.name, fault)
    assert case.run() == expected
    assert case.run() == expected
    assert diode_engine.get_stats()["fallback_error"] == fault.count > 0
    (line,) = lines(caplog)
    assert "MemoryError: full" in line


@pytest.mark.parametrize(
    ("case", "error"),
    zip(CASES, itertools.cycle((KeyboardInterrupt(), SystemExit())), strict=False),
    indirect=["case"],
)
def test_what_ends_the_program_passes(case, error, monkeypatch):
    install(FixedPredictor())
    monkeypatch.setattr(case.owner, case.name, Faults(error))
    with pytest.raises(type(error)):
        case.run()


def test_without_fallback_a_failure_is_raised(case, monkeypatch):
    install(FixedPredictor(), enable_fallback=False)
    monkeypatch.setattr(case.owner, case.name, Faults(ArithmeticError("made up")))
    with pytest.raises(Exception, match=r"made up|has raised"):
        case.run()
    assert INSTALLATION.decision.stats.snapshot()["fallbacks"] == 0


@pytest.mark.parametrize(
    ("owner", "rule", "build"),
    [
        (registers, "can_fuse", mm),
        (choices_module, "takes_library", mm),
        (mm_plus_mm, "_should_be_one_op", sums),
    ],
)
def test_a_failure_of_a_rule_is_counted_and_inductors_rule_is_followed(
    owner, rule, build, predictor, monkeypatch, caplog
):
    predictor.aten = 1000.0  # so that a sum of products stays one kernel
    expected = program(build)
    fault = Faults(MemoryError("full"))
    monkeypatch.setattr(owner, rule, fault)
    assert program(build) == expected
    assert diode_engine.get_stats()["fallback_error"] == fault.count > 0
    assert len(lines(caplog)) == 1


def test_a_benchmark_that_cannot_be_recorded_is_logged_once(predictor, monkeypatch, caplog):
    monkeypatch.setattr(feedback, "_records", Faults(MemoryError("full")))
    for _ in range(2):
        feedback.save({}, "mm")
    assert lines(caplog) == [
        "Diode leaves this to torch: a benchmark was not recorded, MemoryError: full (logged once)."
    ]


def test_keys_that_cannot_be_made_never_occur_again(predictor, monkeypatch, caplog):
    choices = INSTALLATION.decision.choices
    monkeypatch.setattr(ProductChooser, "identity", property(Faults(MemoryError("full"))))
    assert choices.uuid() != choices.uuid()
    assert config.diode_state != config.diode_state
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize(
    ("place", "part", "says"),
    [
        (ProductNotes, "_note_product", "a product was not noted"),
        (preprocessing, "add", "a library's kernel was not taken"),
    ],
)
def test_a_capture_that_fails_does_not_disturb(place, part, says, notes, monkeypatch, caplog):
    expected = [program(build, mode="default") for build in (mm, experts())]
    monkeypatch.setattr(place, part, Faults(MemoryError("full")))
    assert [program(build, mode="default") for build in (mm, experts())] == expected
    (line,) = lines(caplog)
    assert f"{says}, MemoryError: full" in line


def test_code_that_fails_behind_an_import(tmp_path, monkeypatch, caplog):
    (tmp_path / "diode_guarded_later.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    fault = Faults(MemoryError("full"))
    on_import.when_imported("diode_guarded_later", fault)
    assert importlib.import_module("diode_guarded_later").x == 1
    on_import.when_imported("diode_guarded_later", fault)  # now
    assert fault.count == 2
    (line,) = lines(caplog)
    assert "no place in diode_guarded_later" in line
    del sys.modules["diode_guarded_later"]


def test_an_error_of_torchs_own_function_is_raised_and_not_counted(predictor):
    calls: list[int] = []

    def stock(x):
        calls.append(x)
        raise ArithmeticError("torch's own")

    reported: list[Any] = []
    report = guard("it failed", stock=stock, report=lambda x: lambda *told: reported.append(told))
    with pytest.raises(ArithmeticError):
        report(lambda x: STOCK)(1)
    assert (calls, reported) == ([1], [])
    with pytest.raises(ArithmeticError):
        report(Faults(KeyError("ours")))(2)
    assert calls == [1, 2]
    assert [what for what, _ in reported] == ["it failed"]


def test_a_report_that_fails_is_no_failure(caplog):
    for report in (Faults(MemoryError("full")), lambda: Faults(MemoryError("full"))):
        run = guard("it failed", stock=lambda: 7, report=report)(Faults(KeyError("ours")))
        assert run() == 7
    assert len(lines(caplog)) == 1


def code_of(function: Any) -> str:
    return str(function.__code__.co_filename) if isinstance(function, FunctionType) else ""


def functions_in_torch() -> Iterator[tuple[str, Any]]:
    """(name, function) of the functions that torch's modules, classes and lists have."""
    for module in [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "torch"]:
        for name, found in list(vars(module).items()):
            yield name, found
            if isinstance(found, type):
                yield from ((n, getattr(f, "__func__", f)) for n, f in list(vars(found).items()))
    cache = get_algorithm_selector_cache()
    for function in (*cache.preprocessing_fns, *cache.feedback_saver_fns):
        yield function.__name__, function
    yield from (("lowerings", function) for function in lowering.lowerings.values())
    for patterns in post_grad.pass_patterns:
        for entries in patterns.patterns.values():
            yield from (("mm_plus_mm", entry.extra_check) for entry in entries)
    yield from (("decompositions", function) for function in decomposition.decompositions.values())
    for entries in joint_graph.patterns.patterns.values():
        yield from (("bmm_to_mm", entry.extra_check) for entry in entries)
    registered = dict(getattr(inductor_choices, "registered_inductor_choices", dict)())
    default = registered.get("diode_engine", virtualized._choices._default)
    yield "_default", default.__func__
    yield "diode_state", INSTALLATION.cache_key.__func__
    for name, method in vars(DiodeInductorChoices).items():
        if hasattr(InductorChoices, name) or name == "uuid":  # from torch 2.15 on
            yield name, method


def attached() -> list[tuple[str, Any]]:
    """Those of Diode's, except what pretends a device."""
    return [
        (name, function)
        for name, function in functions_in_torch()
        if code_of(function).startswith(str(PACKAGE))
        and not code_of(function).startswith(str(PACKAGE / "inductor" / "without_gpu"))
        and not name.startswith("__")
    ]


def test_every_function_that_torch_calls_is_guarded_and_tested(predictor, monkeypatch, request):
    monkeypatch.setattr(feedback, "_listeners", [])
    feedback.listen(lambda *_: None)
    program(mm)
    found = attached()
    request.getfixturevalue("notes")
    program(mm)
    found += attached()
    assert {name for name, _ in found} == {name.split(",")[0] for name in CASES} | BESIDE
    unguarded = {name for name, function in found if code_of(function) != guard_module.__file__}
    monkeypatch.undo()  # before Diode is uninstalled: the capture is on top of it
    assert unguarded == GUARDED_OUTSIDE

"""Whatever of Diode's fails in a compile, the product gets the library's kernel as in plain
torch.compile, and nothing is benchmarked; it is counted, and logged once."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.exc import InductorError
from torch._inductor.virtualized import V

import diode_engine
from diode_engine import registry
from diode_engine.choosing import chooser, policy
from diode_engine.choosing.stats import Stats
from diode_engine.core.candidate import Candidate
from diode_engine.inductor.choosing import chosen_kernels, product, product_chooser, search
from diode_engine.inductor.choosing.compile_options import CompileOptions
from diode_engine.inductor.choosing.current import current_chooser
from diode_engine.inductor.hook.installation import INSTALLATION
from diode_engine.inductor.hook.integration import ModelPointer
from diode_engine.inductor.lowering import layouts, space
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import (
    FAST,
    OPS,
    Build,
    FixedPredictor,
    build_of,
    called_first,
    install,
    program,
    reopen_decision,
)

mm = build_of(lambda a, b: torch.relu(a @ b), (512, 1024), (1024, 768))
addmm = OPS["addmm"]


def milliseconds(candidate: Candidate) -> float:
    """A Triton kernel of the default space wins."""
    return 0.5 if candidate.config.get("BLOCK_M") == 128 else 1.0


def searched(build: Build) -> str:
    return program(build, benchmark=milliseconds)


def forget() -> None:
    """What was chosen before."""
    choices = INSTALLATION.decision.choices
    choices.diode_chooser._memory.clear()


def said_once(caplog: pytest.LogCaptureFixture, what: str) -> None:
    """What fails for a product may fail for the cache key too, which is said by itself."""
    said = [r.getMessage() for r in caplog.records if r.name.startswith("diode_engine")]
    (line,) = [line for line in said if "the cache key could not be computed" not in line]
    assert what in line


def raising(error: BaseException) -> Callable[..., Any]:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    return fails


FAULTS = (RuntimeError("broken"), MemoryError("full"), RecursionError("deep"), KeyError("gone"))

# Steps of a choice, by the name under which Diode finds them: inside the guard of the choice, and
# outside of it. (What each guard does is in test_guard.py.)
STEPS: dict[str, tuple[Any, str]] = {
    "the device is looked at": (product_chooser, "detect"),
    "the search is looked at": (search, "find_alteration"),
    "options are read": (CompileOptions, "current"),
    "a key is made": (product.Request, "key"),
    "the problem is read": (product, "problem_of"),
    "the list is cut": (space._Configs, "_cut_to"),
    "parameters are made": (space._Configs, "kernel"),
    "the model is asked": (chooser.Chooser, "predict"),
    "the candidates are compared": (policy.Policy, "compare"),
    "the operands are looked at": (layouts, "will_move"),
    "it is annotated": (chosen_kernels, "annotate"),
    "the op is looked at": (product_chooser.ProductChooser, "should_choose"),
    "it is counted": (Stats, "count"),
    "a call is counted": (Stats, "count_call"),
}
# Steps of products with a dynamic size alone.
DYNAMIC_STEPS: dict[str, tuple[Any, str]] = {
    "sizes without a hint are looked for": (product, "free_unbacked_symbols"),
    "other sizes are drawn": (product, "draw_problems"),
    "they are judged": (chooser.Chooser, "predict_over"),
}
ALL_STEPS = STEPS | DYNAMIC_STEPS


# Before torch 2.13 there are two calls of the library for addmm, of which one must be taken.
LIBRARY = {"options": {"max_autotune_gemm_backends": "ATEN"}, "benchmark": lambda _: 1.0}


@pytest.fixture(scope="module")
def stock():
    """The programs of Inductor's search."""
    diode_engine.uninstall_diode_choices()
    return {build: searched(build) for build in (mm, addmm)}


@pytest.fixture(scope="module")
def library():
    """The programs with the library's kernels."""
    diode_engine.uninstall_diode_choices()
    return {build: program(build, **LIBRARY) for build in (mm, addmm)} | {
        "dynamic": program(mm, dynamic=True, **LIBRARY)
    }


def test_a_product_is_chosen_otherwise_than_by_stock(stock, library, predictor):
    for build in (mm, addmm):
        assert len({program(build), stock[build], library[build]}) == 3


@pytest.mark.parametrize(("step", "fault"), zip(ALL_STEPS, itertools.cycle(FAULTS), strict=False))
def test_a_step_that_fails_takes_the_library_s_kernel(
    step, fault, library, predictor, monkeypatch, caplog
):
    monkeypatch.setattr(*ALL_STEPS[step], raising(fault))
    if step in DYNAMIC_STEPS:
        assert program(mm, dynamic=True) == library["dynamic"]
    else:
        assert program(mm) == library[mm]
    if "counted" not in step:
        assert diode_engine.get_stats()["fallback_error"] == 1
    said_once(caplog, str(fault))


def test_all_of_a_program_s_products_are_left_and_it_is_said_once(
    library, predictor, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS["the problem is read"], raising(RuntimeError("broken")))
        assert program(addmm) == library[addmm]
        assert program(addmm) == library[addmm]
    assert diode_engine.get_stats()["fallback_error"] == 2
    said_once(caplog, "broken")
    assert program(addmm) != library[addmm]  # once it works again


ODD: dict[str, tuple[Callable[[int], Any], str]] = {
    "NaN": (lambda n: np.full(n, np.nan), "no_prediction"),
    "infinity": (lambda n: np.full(n, np.inf), "no_prediction"),
    "negative": (lambda n: np.full(n, -1.0), "no_prediction"),
    "zero": (lambda n: np.zeros(n), "no_prediction"),
    "too few": (lambda n: np.ones(n - 1), "error"),
    "too many": (lambda n: np.ones(n + 1), "error"),
    "nothing": (lambda n: np.ones(0), "error"),
    "None": (lambda n: None, "no_prediction"),
    "words": (lambda n: np.array(["fast"] * n), "error"),
    "two dimensions": (lambda n: np.ones((n, 2)), "error"),
}


@pytest.mark.parametrize(("answer", "reason"), ODD.values(), ids=ODD)
def test_a_model_that_answers_nonsense(answer, reason, library, predictor, monkeypatch):
    monkeypatch.setattr(predictor, "predict_us", lambda _, candidates: answer(len(candidates)))
    assert program(addmm) == library[addmm]
    stats = diode_engine.get_stats()
    assert stats[f"fallback_{reason}"] == stats["fallbacks"] > 0


@pytest.mark.parametrize("place", ["at once", "after some", "when it is rendered", "declined"])
@pytest.mark.parametrize("rebuilt", [True, False])
def test_inductors_generators_fail_for_diode_alone(place, rebuilt, library, predictor, monkeypatch):
    """What stock Inductor offers can be rendered; of the wider space something cannot."""
    from torch._inductor.select_algorithm import TritonTemplate

    if not rebuilt:  # another library's hook: Diode reads what Inductor lists
        hook = InductorChoices._finalize_template_configs
        theirs = lambda *args, **kwargs: hook(*args, **kwargs)  # noqa: E731
        monkeypatch.setattr(InductorChoices, "_finalize_template_configs", theirs)
    get_ktc = InductorChoices.get_ktc

    def generators(self, *args, **kwargs):
        for place_of, choice in enumerate(get_ktc(self, *args, **kwargs)):
            wide = config.max_autotune_gemm_search_space == "EXHAUSTIVE"
            if wide and (place == "at once" or place_of == 3):
                raise RuntimeError("not in this space")
            yield choice

    choice_or_none = TritonTemplate.choice_or_none

    def render(self, **kwargs):
        if (kwargs["BLOCK_M"], kwargs["BLOCK_N"], kwargs["num_stages"]) == (128, 256, 3):
            if place == "declined":
                return None
            raise RuntimeError("cannot be rendered")
        return choice_or_none(self, **kwargs)

    if "rendered" in place or place == "declined":
        monkeypatch.setattr(TritonTemplate, "choice_or_none", render)
    else:
        monkeypatch.setattr(space._Configs, "read", lambda *_: None)  # it is listed
        monkeypatch.setattr(InductorChoices, "get_ktc", generators)
    assert program(mm) == library[mm]
    assert diode_engine.get_stats()["fallback_error"] == 1


def test_a_call_that_torch_cannot_lower_is_no_failure_of_diodes(predictor):
    """In torch 2.13 `addmm` with an out_dtype has no lowering."""
    shapes = (512, 768), (512, 1024), (1024, 768)
    wide = lambda c, a, b: torch.addmm(c, a, b, out_dtype=torch.float32)  # noqa: E731
    for how in ({}, FAST):
        with contextlib.suppress(InductorError):
            lower(build_of(wide, *shapes), **how)
    assert diode_engine.get_stats()["fallback_error"] == 0


LAST = {
    "the best are taken": (policy.Comparison, "join"),
    "it is told": (Stats, "record_choice"),
    "it is traced": (chosen_kernels.trace, "trace_choice"),
}


@pytest.mark.parametrize("step", LAST)
@pytest.mark.parametrize("build", [mm, addmm])
def test_a_last_choice_that_fails_takes_the_library_s_kernel(
    step, build, library, monkeypatch, caplog
):
    install(FixedPredictor(aten=1.2), performance_threshold=1e9, top_k_configs=3)
    monkeypatch.setattr(*LAST[step], raising(RuntimeError("broken")))
    assert program(build) == library[build]
    assert diode_engine.get_stats()["fallback_error"] == 1
    said_once(caplog, "broken")


AUTOTUNED = [STEPS["the problem is read"], STEPS["it is annotated"], *LAST.values()]


@pytest.mark.parametrize("step", AUTOTUNED, ids=lambda step: step[1])
def test_a_step_that_fails_is_autotuned_where_that_is_asked_for(step, predictor, monkeypatch):
    monkeypatch.setattr(*step, raising(RuntimeError("broken")))
    asked = {"diode_fallback_to_autotune": True}
    lowered = lower(mm, options=asked, benchmark=milliseconds)
    assert "triton_heuristics.template" in lowered.sources[0]
    if step not in LAST.values():
        assert len(lowered.seen[0].candidates) > 10


@pytest.mark.parametrize("lost", [None, {}, {"diode": "theirs"}, "no dictionary", 7])
def test_annotations_that_are_lost_or_replaced(lost):
    choices = [SimpleNamespace(annotations=lost), SimpleNamespace()]
    assert chosen_kernels.final_choice(choices) == choices


def test_choices_whose_annotations_somebody_clears_are_benchmarked(predictor):
    def clear(choices):
        for choice in choices:
            choice.annotations.clear()
        return choices

    with called_first(clear):
        (source,) = lower(mm, benchmark=milliseconds).sources
    assert "triton_heuristics.template" in source


def test_the_model_s_files_may_go_once_it_is_installed(tmp_path, stock):
    found = registry.resolve("gemm", "NVIDIA H200")
    folder = tmp_path / "model"
    shutil.copytree(found.folder, folder)
    assert diode_engine.install_diode_choices(folder, top_k_configs=1)
    expected = program(mm)
    assert diode_engine.get_stats()["model_selections"] > 0
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"something else")
    forget()
    assert program(mm) == expected
    shutil.rmtree(folder)
    forget()
    assert program(mm) == expected
    assert diode_engine.get_stats()["fallbacks"] == 0


def test_a_model_that_cannot_be_loaded_when_something_is_compiled(stock, monkeypatch, caplog):
    monkeypatch.setattr(ModelPointer, "load", raising(MemoryError("full")))
    reopen_decision()
    for _ in range(2):
        assert searched(mm) == stock[mm]
    assert "could not be loaded" in str(diode_engine.get_stats()["reason"])
    said_once(caplog, "inactive")


@pytest.mark.usefixtures("predictor")
def test_choices_of_another_kind_on_top():
    """Of somebody's, whose methods are functions."""
    methods = dict.fromkeys(("get_template_configs", "_finalize_template_configs"), raising)
    with V.set_choices_handler(SimpleNamespace(**methods)):
        assert current_chooser() is None


@pytest.mark.parametrize("step", ["the problem is read", "it is annotated", "a call is counted"])
def test_fast_autotune_leaves_what_fails_to_the_default_mode(step, predictor, monkeypatch):
    diode_engine.uninstall_diode_choices()
    expected = program(addmm, mode="default")
    install(predictor)
    assert program(addmm, **FAST) != expected
    forget()
    monkeypatch.setattr(*STEPS[step], raising(RuntimeError("broken")))
    assert program(addmm, **FAST) == expected


@pytest.mark.parametrize(
    "build",
    [
        build_of(torch.addmm, (), (512, 1024), (1024, 768)),
        build_of(partial(torch.baddbmm, beta=0.5), (16, 64, 1), (16, 64, 128), (16, 128, 64)),
    ],
    ids=["a scalar bias", "a bias that is halved"],
)
def test_what_only_the_default_mode_lowers_is_lowered_by_fast_autotune(build, predictor):
    """Inductor's max-autotune itself raises on some products."""
    program(build, **FAST)


@pytest.mark.parametrize(
    ("option", "value"), [("multi_kernel_hints", [64]), ("distributed_max_autotune_gemm", True)]
)
def test_a_search_that_counts_on_all_that_is_offered_is_left_to_it(option, value):
    with config.patch({option: value}):
        assert option in str(search.find_alteration())


def test_autoheuristic_is_left_to_itself(monkeypatch):
    monkeypatch.setitem(vars(config), "run_autoheuristic", lambda name: name == "mm")
    assert "AutoHeuristic" in str(search.find_alteration())

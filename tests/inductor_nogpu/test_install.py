"""How Diode's choices get into torch, into all threads and cache keys, and out again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
import torch._inductor.virtualized as virtualized
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

import diode_engine
from diode_engine import registry
from diode_engine.core.hardware import H200, Hardware
from diode_engine.errors import IntegrationError, ModelError, RegistryError
from diode_engine.inductor import without_gpu
from diode_engine.inductor.choosing.chosen_kernels import final_choice
from diode_engine.inductor.hook import installation
from diode_engine.inductor.hook.choices import DiodeInductorChoices
from diode_engine.inductor.without_gpu import lower
from diode_engine.store import Store
from tests.inductor_nogpu.conftest import FixedPredictor, gemm, install, reopen_decision, run_python
from tests.inductor_nogpu.conftest import state_in_keys as key

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    result: list[T] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


class Theirs(InductorChoices):
    """Another library's choices."""

    asked = 0

    def __init__(self) -> None:
        self.mine = "still here"

    def get_ktc(self, *args: Any, **kwargs: Any) -> Any:
        assert self.mine == "still here"
        Theirs.asked += 1
        return super().get_ktc(*args, **kwargs)

    def _finalize_template_configs(self, template_choices: Any, *args: Any, **kwargs: Any) -> Any:
        offered = super()._finalize_template_configs(template_choices, *args, **kwargs)
        return [c for c in offered if c.params.to_kwargs().get("num_warps") != 8]


@pytest.fixture
def theirs():
    handler = Theirs()
    with V.set_choices_handler(handler):
        yield handler
        diode_engine.uninstall_diode_choices()


def seen_around(change: Callable[[], Any], look: Callable[[], T]) -> list[T]:
    """What a thread sees before and after a change that another thread makes."""
    looked, changed = threading.Event(), threading.Event()
    seen: list[T] = []

    def looks() -> None:
        seen.append(look())
        looked.set()
        changed.wait()
        seen.append(look())

    thread = threading.Thread(target=looks)
    thread.start()
    looked.wait()
    change()
    changed.set()
    thread.join()
    return seen


def test_all_threads_have_the_choices():
    def choices():
        return V.choices.get_ktc.__self__  # a thread keeps a copy of them

    before, after = seen_around(lambda: install(FixedPredictor()), choices)
    assert type(before) is InductorChoices
    assert isinstance(after, DiodeInductorChoices)
    assert in_thread(choices) is after


def test_uninstalling_puts_everything_back():
    slot = virtualized._choices
    before = (slot._default, slot._key)
    install(FixedPredictor())
    install(FixedPredictor(identity="b"))
    lower(gemm)
    diode_engine.uninstall_diode_choices()
    assert (slot._default, slot._key) == before
    functions = torch._inductor.select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    assert final_choice not in functions
    assert key() == ""
    lowered = lower(gemm, benchmark=lambda _: 1.0)
    assert len(lowered.seen[0].candidates) > 10
    stats = diode_engine.get_stats()
    assert (stats["active"], stats["reason"]) == (False, "Diode's choices were uninstalled")


def test_another_librarys_choices_are_composed_with_and_restored(theirs):
    predictor = FixedPredictor(best={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64})
    install(predictor)
    composed = V.choices.get_ktc.__self__
    assert isinstance(composed, DiodeInductorChoices)
    assert isinstance(composed, Theirs)
    asked = Theirs.asked
    for _ in range(2):
        (seen,) = lower(gemm).seen
        assert seen.predicted_us == (1.0,)
        assert seen.candidates[0].config["num_warps"] != 8  # they allow no 8
    assert Theirs.asked > asked
    assert vars(theirs) == {"mine": "still here"}  # nothing of Diode's is written there
    diode_engine.uninstall_diode_choices()
    assert V.choices.get_ktc.__self__ is theirs


def test_choices_set_on_top_of_diodes_stay(predictor):
    mine = Theirs()
    with V.set_choices_handler(mine):
        diode_engine.uninstall_diode_choices()
        assert V.choices.get_ktc.__self__ is mine
    V.set_choices_handler(InductorChoices())


def status() -> tuple[str, str]:
    found = diode_engine.get_integration_status()["integrations"]["matmul"]
    return found["state"], found["reason"]


def test_the_status_tells_that_another_handler_serves_this_thread():
    predictor = FixedPredictor(best={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64})
    install(predictor)
    assert status() == ("active", "")
    with V.set_choices_handler(Theirs()):
        state, reason = status()
        stats = diode_engine.get_stats()
        assert state == "inactive"
        assert f"{Theirs.__module__}.Theirs" in reason
        assert "install_diode_choices()" in reason
        assert (stats["active"], stats["reason"]) == (False, reason)
        assert in_thread(status) == ("active", "")  # in another one Diode chooses
        # What the reason says helps, and Theirs is still asked.
        install(predictor)
        assert status() == ("active", "")
        (seen,) = lower(gemm).seen
        assert seen.predicted_us == (1.0,)
        assert seen.candidates[0].config["num_warps"] != 8  # they allow no 8
    diode_engine.uninstall_diode_choices()
    V.set_choices_handler(InductorChoices())


def test_the_status_tells_what_the_first_compile_would_find(monkeypatch):
    reopen_decision()
    assert diode_engine.get_stats()["reason"] == installation._NOT_YET
    assert status() == ("active", "")
    reopen_decision()
    monkeypatch.setattr(registry, "load_predictor", lambda *_: None)
    state, reason = status()
    assert (state, reason[:31]) == ("inactive", "there is no model for NVIDIA H2")


def test_a_default_that_was_replaced_later_is_not_taken_away(predictor, monkeypatch):
    slot: Any = virtualized._choices
    under = slot._default
    monkeypatch.setattr(slot, "_default", lambda: under())
    diode_engine.uninstall_diode_choices()
    assert slot._default is not under
    assert type(in_thread(lambda: V.choices.get_ktc.__self__)) is InductorChoices
    monkeypatch.undo()
    diode_engine.install_diode_choices(predictor=predictor)  # and it can come again


def test_a_thread_that_is_about_to_ask_while_another_uninstalls(predictor):
    found: Any = virtualized._choices._default  # has looked into the slot, and is stopped here
    diode_engine.uninstall_diode_choices()
    assert type(in_thread(found)) is InductorChoices


def test_the_cache_key_names_model_and_options():
    def installed(identity, **options):
        predictor = FixedPredictor(identity=identity)
        assert diode_engine.install_diode_choices(predictor=predictor, **options)
        assert in_thread(key) == key()
        return key()

    a = installed("a")
    assert installed("a") == a
    others = installed("b"), installed("a", top_k_configs=2)
    assert len({a, *others, installed("a", performance_threshold=1.5)}) == 4
    for part in (torch.__version__, "model b"):
        assert part in installed("b")
    diode_engine.uninstall_diode_choices()
    assert key() == in_thread(key) == ""


def test_a_thread_that_has_read_its_config_reads_it_again():
    install(FixedPredictor(identity="a"))
    # torch keeps the hash for the thread
    before, after = seen_around(lambda: install(FixedPredictor(identity="b")), config.get_hash)
    assert before != after


def test_saved_options_do_not_bring_an_old_key_back():
    diode_engine.install_diode_choices(predictor=FixedPredictor(identity="a"))
    saved = config.save_config()
    diode_engine.install_diode_choices(predictor=FixedPredictor(identity="b"))
    config.load_config(saved)
    assert "model b" in key()


def test_what_another_thread_runs_is_not_taken_from_under_it(caplog):
    running, over = threading.Event(), threading.Event()
    compiled: list[int] = []

    @torch._dynamo.disable
    def wait():
        running.set()
        over.wait(60)

    def backend(graph, inputs):
        compiled.append(len(inputs))
        return graph.forward

    @torch.compile(backend=backend)
    def function(x):
        wait()
        return x + 1

    torch._dynamo.reset()
    thread = threading.Thread(target=function, args=(torch.ones(2),))
    thread.start()
    try:
        assert running.wait(60)
        install(FixedPredictor())
        assert "Another thread compiles, or runs" in caplog.text
    finally:
        over.set()
        thread.join()
    assert compiled == [1]
    function(torch.ones(2))
    assert compiled == [1]  # it was not forgotten
    caplog.clear()
    diode_engine.uninstall_diode_choices()
    assert not caplog.text
    function(torch.ones(2))
    assert compiled == [1, 1]


def test_a_model_that_is_asked_for_and_not_there(predictor):
    with pytest.raises((ModelError, RegistryError)):
        diode_engine.install_diode_choices(model_path="no/such/model")
    assert diode_engine.get_stats()["model"] == predictor.identity  # nothing has changed


@pytest.mark.parametrize(
    "options", [{"top_k_configs": 0}, {"top_k_configs": 1.5}, {"performance_threshold": 0.9}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="it must be"):
        diode_engine.install_diode_choices(predictor=FixedPredictor(), **options)
    assert not diode_engine.get_stats()["active"]


def test_without_a_hook_in_torch(monkeypatch, caplog):
    monkeypatch.delattr(InductorChoices, "_finalize_template_configs")
    assert not diode_engine.install_diode_choices(predictor=FixedPredictor())
    assert "2.10" in caplog.text
    assert "2.10" in str(diode_engine.get_stats()["reason"])


def test_pretending_twice(monkeypatch):
    without_gpu.pretend(H200)  # it is the same
    other = Hardware.from_dict({**H200.to_dict(), "name": "NVIDIA H100"})
    with pytest.raises(IntegrationError, match="already"):
        without_gpu.pretend(other)
    monkeypatch.setattr(without_gpu.device, "_pretended", None)
    with pytest.raises(IntegrationError, match="There is a GPU"):  # is_available says so here
        without_gpu.pretend(H200)
    with pytest.raises(IntegrationError, match="pretend"):
        lower(gemm)


# `import diode_engine` alone installs the registry's model, which is made up here. A second process
# is forked after the imports, and has no model.
AUTOMATIC = """
import diode_engine, os, sys
assert not {"torch", "sqlalchemy"} & {*sys.modules}
import torch
assert not any(name.startswith("torch._inductor") for name in sys.modules)
from diode_engine import registry
from diode_engine.inductor.without_gpu import lower, pretend
import numpy as np

class Model:
    identity = "made up"
    def predict_us(self, problem, candidates):
        return np.array([1.0 if c.config.get("BLOCK_K") == 32 else 2.0 for c in candidates])

loaded = []
def load_predictor(hardware, purpose):
    loaded.append(hardware.name)
    return None if is_second else Model()
registry.load_predictor = load_predictor
assert loaded == []  # not before something is compiled
is_second = os.fork() == 0
if not is_second:
    os.wait()
pretend()
def empty(*shape):
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda")
for _ in range(2):
    lowered = lower(lambda: (torch.mm, (empty(512, 512), empty(512, 512))), benchmark=lambda c: 1.0)
    print("choices:", len(lowered.seen[0].candidates))
print(loaded, diode_engine.get_stats())
"""
# A program that sets Diode's options, which the environment sets too.
SETS_OPTIONS = """
from diode_engine.inductor.hook.options import OPTIONS
from torch._inductor import config
print([getattr(config, option.name) for option in OPTIONS])
o = {"fast_autotune": True, "max_autotune_gemm_backends": "DIODE", "max_autotune": True}
print(torch.compile(lambda a, b: a @ b, options=o)(torch.ones(4, 4), torch.ones(4, 4)).sum())
"""


def test_importing_installs_where_there_is_a_model(tmp_path):
    """Without one Inductor searches, and what it benchmarks is written where that is asked for."""
    path = tmp_path / "feedback.db"
    said = run_python(AUTOMATIC, DIODE_DISABLE="false", DIODE_FEEDBACK=str(path))
    without, _, with_model = said.partition("'active': False")
    assert "choices: 1\n" not in without
    assert said.count("Diode is inactive, compiles are stock: there is no model") == 1
    assert "\nchoices: 1\nchoices: 1\n['NVIDIA H200']" in with_model
    assert "'active': True" in with_model
    assert "Diode: " not in said  # TORCH_LOGS does not ask for a line
    with Store.open(path, read_only=True) as store:
        assert len(store.read()) > 10


def test_importing_disabled():
    said = run_python(
        AUTOMATIC + SETS_OPTIONS, DIODE_DISABLE="1", DIODE_FAST_AUTOTUNE="1", DIODE_TOP_K="1",
        DIODE_CONFIDENCE_THRESHOLD="0.75", DIODE_FALLBACK_TO_AUTOTUNE="true",
        DIODE_CACHE_PREDICTIONS="0", DIODE_FUSION_AWARE="nonsense", DIODE_FROZEN_CHOICES="file",
    )  # fmt: skip
    assert "choices: 1\n" not in said
    assert "DIODE_DISABLE is set" in said
    assert "[] {" in said
    assert "[True, 1, 0.75, True, False, True, False, 'file']" in said
    assert "DIODE_FUSION_AWARE=nonsense is ignored: it must be 0 or 1" in said
    assert "tensor(64.)" in said


@pytest.mark.parametrize("mode", ["NORMAL", "SUBPROCESS"])  # where a graph is compiled
def test_importing_after_torch_and_without_a_gpu(mode):
    said = run_python(
        "import torch, torch._inductor.compile_fx\n"
        "f = torch.compile(lambda a, b: a @ b)\n"
        "f(torch.ones(4, 4), torch.ones(4, 4))\n"
        "import diode_engine\n"
        "f(torch.ones(4, 4), torch.ones(4, 4))\n"
        "print(diode_engine.get_stats())\n",
        TORCHINDUCTOR_FX_COMPILE_MODE=mode,
        TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
    )
    assert "there is no NVIDIA GPU" in said
    assert said.count("Diode is inactive") == 1


def test_importing_without_triton():
    said = run_python(
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import diode_engine, torch\n"
        "print(diode_engine.install_diode_choices(), diode_engine.get_stats()['reason'])\n"
        "print(diode_engine.get_integration_status()['integrations']['matmul']['state'])\n"
        "f = torch.compile(lambda a, b: a @ b)\n"
        "print(f(torch.ones(4, 4), torch.ones(4, 4)).sum())\n",
    )
    assert "False Diode needs torch 2.10 or newer with Inductor and Triton" in said
    assert "inactive" in said
    assert "tensor(64.)" in said

"""These tests change torch for the whole process, so they have a pytest process of their own:
`pytest tests/inductor_nogpu`."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="diode-test-")
os.environ.pop("DIODE_DISABLE", None)
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import numpy as np
import pytest
import torch
from functorch.compile import make_boxed_func
from torch._guards import detect_fake_mode
from torch._inductor import config
from torch._inductor.codecache import FxGraphHashDetails
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.select_algorithm import get_algorithm_selector_cache

import diode_engine
from diode_engine.choosing import proofs
from diode_engine.choosing.prediction import Prediction
from diode_engine.choosing.proofs import Proof
from diode_engine.choosing.summation import Instruction, SummationOrder
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.inductor import without_gpu
from diode_engine.inductor.choosing.chosen_kernels import final_choice
from diode_engine.inductor.hook import installation
from diode_engine.inductor.hook.installation import INSTALLATION, Decision
from diode_engine.inductor.lowering import preprocessing
from diode_engine.registry import load_predictor

without_gpu.pretend(H200)

BEST = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_stages": 3, "num_warps": 8}
ASKS_BEFORE_PADDING = pytest.mark.skipif(
    torch.__version__ < (2, 11), reason="torch 2.10 times padding in another function"
)
FAST = {"mode": "default", "options": {"fast_autotune": True}}
BATCH = 10  # random products of a test
SPACES = [  # problems of which each space is another
    Problem.make("mm", 1024, 1024, 1024, "bfloat16"),
    Problem.make("mm", 64, 4096, 1000, "bfloat16", b_layout="col"),
    Problem.make("mm", 17, 4096, 1001, "float16"),  # no TMA
    Problem.make("mm", 1, 4096, 4096, "float16"),
    Problem.make("mm", 512, 1, 4096, "float16", b_layout="col"),
    Problem.make("mm", 32, 96, 4096, "float16"),  # K may be split
    Problem.make("mm", 8, 64, 8192, "float16"),  # K is split
    Problem.make("mm", 32, 96, 20160, "float16"),  # in more ways than DEFAULT tries
    Problem.make("addmm", 100, 304, 96, "float32", allow_tf32=True),
    Problem.make("addmm", 5, 128, 64, "float32", bias="matrix"),
    Problem.make("bmm", 33, 100, 100, "float16", B=4),
    Problem.make("baddbmm", 128, 64, 100, "bfloat16", B=4),
]
WGMMA, MMA = (
    SummationOrder(instruction, "bfloat16", "float32", 16)
    for instruction in (Instruction.WGMMA, Instruction.MMA)
)
Build = Callable[[], tuple[Any, Sequence[torch.Tensor]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tries", type=int, default=40, help="random products to lower")
    parser.addoption("--first", type=int, default=0, help="the number of the first one")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tries" in metafunc.fixturenames:
        first = metafunc.config.getoption("--first")
        numbers = range(first, first + metafunc.config.getoption("--tries"))
        parts = [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]
        metafunc.parametrize("tries", parts, ids=lambda part: f"{part[0]}-{part[-1]}")


def is_tile(candidate: Candidate, tile: dict[str, int]) -> bool:
    return all(candidate.config.get(name) == value for name, value in tile.items())


class FixedPredictor:
    """Predicts one microsecond for the `best` Triton config, `aten` for ATen and more for the
    larger of all other tiles."""

    def __init__(
        self, *, best: dict[str, int] | None = None, aten: float = 5.0, identity: str = "fixed"
    ) -> None:
        self.best = BEST if best is None else best
        self.aten = aten
        self.identity = identity
        self.asked: list[tuple[Problem, int]] = []

    def time(self, candidate: Candidate) -> float:
        config = candidate.config
        if candidate.template.startswith("aten"):
            return self.aten
        if is_tile(candidate, self.best):
            return 1.0
        return 10.0 + float(config.get("BLOCK_M") or 0) + float(config.get("BLOCK_N") or 0)

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> np.ndarray:
        self.asked.append((problem, len(candidates)))
        return np.array([self.time(candidate) for candidate in candidates])


class Rule:
    """Predicts the time of a candidate for a problem by a rule. `reaches` and `error` are those of
    its predictions, `proven` says whether Triton's kernels are, and `hardware` is what it was
    trained on."""

    identity = "rule"

    def __init__(
        self,
        us: Callable[[Problem, Candidate], float],
        *,
        reaches: tuple[float, ...] | None = None,
        error: float | None = None,
        proven: bool = True,
        hardware: Hardware = H200,
    ) -> None:
        self.us, self.reaches, self.error, self.hardware = us, reaches, error, hardware
        self.proven = proven
        self.asked: list[Problem] = []

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> np.ndarray:
        self.asked.append(problem)
        return np.array([self.us(problem, candidate) for candidate in candidates])

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        us = self.predict_us(problem, candidates)
        proven = None if self.proven else np.array([c.is_extern for c in candidates])
        return Prediction(problem, candidates, us, self.reaches, self.error, proven)


def sure(*, error: float = 0.0, proven: bool = True, **fixed: Any) -> Rule:
    """A FixedPredictor's times, of which it is sure."""
    us = FixedPredictor(**fixed).time
    return Rule(lambda _, c: us(c), reaches=(0.9,), error=error, proven=proven)


SPEECHLESS = Rule(lambda *_: np.nan)  # knows no candidate
LIBRARY, TRITON = 0.5, 1000.0  # what ATen takes so that it, or Triton's kernel, is taken


def install(predictor: Any, **options: Any) -> None:
    """Installs Diode with this predictor; its best choice alone is taken."""
    given = {"top_k_configs": 1, **options}
    assert diode_engine.install_diode_choices(predictor=predictor, **given)


def install_times(aten: float, **options: Any) -> FixedPredictor:
    """Installs Diode with a predictor by which ATen takes so long, and all others 10 us or more."""
    predictor = FixedPredictor(best={"BLOCK_M": 0}, aten=aten)
    install(predictor, **options)
    return predictor


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> torch.Tensor:
    """A tensor without data."""
    return torch.empty(shape, dtype=dtype, device=device)


def marked(tensor: torch.Tensor, *dims: int, **bounds: int) -> torch.Tensor:
    """The tensor, whose sizes in these dimensions are dynamic, within the bounds."""
    for dim in dims:
        torch._dynamo.mark_dynamic(tensor, dim, **bounds)
    return tensor


def tensors_of(problem: Problem) -> list[torch.Tensor]:
    """The problem's operands, without data."""
    return [
        torch.empty_strided(size, stride, dtype=getattr(torch, dtype), device="cuda")
        for size, stride, dtype in problem.input_shapes().values()
    ]


def build_of(
    function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16
) -> Build:
    """A program of this function of tensors of these shapes."""
    return lambda: (function, [empty(*shape, dtype=dtype) for shape in shapes])


def perceptron(first: int, hidden: int, last: int, *, bias: bool = True) -> torch.nn.Module:
    """Two layers with ReLU between them, without data; the second one has a `bias` or none."""
    how: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta"}
    layers = torch.nn.Linear(first, hidden, **how), torch.nn.Linear(hidden, last, bias, **how)
    return without_gpu.without_data(torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]))


# A program of one product of each op, of 512×1024 by 1024×768.
OPS: dict[str, Build] = {
    "mm": build_of(torch.mm, (512, 1024), (1024, 768)),
    "addmm": build_of(torch.addmm, (768,), (512, 1024), (1024, 768)),
    "bmm": build_of(torch.bmm, (4, 512, 1024), (4, 1024, 768)),
    "baddbmm": build_of(torch.baddbmm, (4, 512, 768), (4, 512, 1024), (4, 1024, 768)),
}
gemm = OPS["mm"]


def run_python(program: str, **environment: str) -> str:
    """What a program prints and logs in a Python of its own, in which nothing is pretended yet."""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def state_in_keys() -> str:
    """What the keys of Inductor's FX-graph cache have of Diode."""
    details: Any = FxGraphHashDetails(None, [], {}, [])  # type: ignore[arg-type]
    return str(details.inductor_config["diode_state"])


def only(lowered: without_gpu.Lowered) -> Candidate:
    """The one kernel that was chosen for the one product."""
    (seen,) = lowered.seen
    (candidate,) = seen.candidates
    return candidate


def programs(build: Build, **how: Any) -> list[str]:
    """The generated programs, without the numbers of graphs and the names of folders. Raises where
    something is benchmarked and `how` has no times for it."""
    sources = without_gpu.lower(build, **how).sources
    return [re.sub(r"AOT ID: .*|/tmp\w+/", "", source) for source in sources]


def program(build: Build, **how: Any) -> str:
    """The generated program, as `programs` has it."""
    (source,) = programs(build, **how)
    return source


@contextlib.contextmanager
def preprocessing_by(function: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """Inductor also calls this function with each list of choices, after Diode's own."""
    preprocessing.add(final_choice)
    preprocessing.add(function)
    yield
    preprocessing.remove(function)


@contextlib.contextmanager
def called_first(function: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """Inductor calls this function with each list of choices before Diode's own."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    functions.insert(0, function)
    yield
    functions.remove(function)


def lower_step(net: torch.nn.Module, x: torch.Tensor, **options: Any) -> without_gpu.Lowered:
    """A training step. Autograd runs on the CPU, where a backward can be traced without a device;
    what it hands to Inductor is lowered for the GPU, the backward in another thread."""

    def on_gpu(graph: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        with detect_fake_mode(inputs):
            moved = [
                torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
                for x in inputs
            ]
        with config.patch(options):  # of this thread alone
            compile_fx_inner(copy.deepcopy(graph), moved, **kwargs)
        return make_boxed_func(graph)

    torch._dynamo.reset()
    with without_gpu.lowering() as lowered:
        compiled = torch.compile(
            net, backend=lambda graph, inputs: compile_fx(graph, inputs, inner_compile=on_gpu)
        )
        thread = threading.Thread(target=lambda out: out.sum().backward(), args=[compiled(x)])
        thread.start()
        thread.join()
    return lowered


@contextlib.contextmanager
def whole_spaces() -> Iterator[None]:
    """Inductor offers too what needs more shared memory than the device has, which torch 2.10
    leaves out by itself."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(max_autotune_prune_choices_based_on_shared_mem=False))
        if torch.__version__ < (2, 11):
            from torch._inductor.template_heuristics import triton

            unknown = mock.Mock(return_value=None)
            name = "_get_exceeding_shared_memory_checker"
            stack.enter_context(mock.patch.object(triton.BaseConfigHeuristic, name, unknown))
        yield


def reopen_decision() -> None:
    """What `import diode_engine` leaves: the first compile decides what chooses."""
    with INSTALLATION.lock:
        INSTALLATION.decision = Decision(None, installation._NOT_YET, is_made=False)
        INSTALLATION._take_slot()


@pytest.fixture(autouse=True)
def _stock_before_and_after():
    diode_engine.uninstall_diode_choices()  # what the import has installed
    yield
    diode_engine.uninstall_diode_choices()


@pytest.fixture
def predictor():
    """Installed with top-1."""
    predictor = FixedPredictor()
    install(predictor)
    return predictor


@pytest.fixture
def prove(monkeypatch):
    """Has orders of summation count as proven, those of a group together, and the shipped model
    choose."""

    def given(*groups: Sequence[SummationOrder]) -> None:
        versions = ("2.10", "2.99"), ("3.6", "3.99")
        rows = tuple(Proof(tuple(orders), "9.0", *versions, 1, 1, "made up") for orders in groups)
        monkeypatch.setattr(proofs, "PROOFS", rows)
        install(load_predictor(H200))

    return given


@pytest.fixture
def proven(prove):
    """Both orders of half precision count as proven."""
    prove([WGMMA], [MMA])


@pytest.fixture
def notes(monkeypatch):
    """What a capture notes, put into this very process."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.kernel import mm_grouped

    from diode_engine.inductor.hook.product_notes import ProductNotes
    from diode_engine.inductor.listening import capture

    taken: list[dict[str, Any]] = []
    stock = InductorChoices._finalize_template_configs
    functions = get_algorithm_selector_cache().preprocessing_fns
    monkeypatch.setattr(InductorChoices, "_finalize_template_configs", stock)  # put back later
    for name in ("_tuned_grouped_mm_common", "early_config_prune"):
        monkeypatch.setattr(mm_grouped, name, getattr(mm_grouped, name))
    watch = ProductNotes(lambda **note: taken.append(note))
    watch.begin()
    capture.attach()
    yield taken
    watch.end()
    if capture.prefer_aten in functions:
        functions.remove(capture.prefer_aten)

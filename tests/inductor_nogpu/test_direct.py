"""Kernels compiled for many problems: what Inductor and Triton make of them for sm_90, and the
bench that launches them, over a driver that computes in the CPU's memory."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import re
import subprocess
import threading
import weakref
from dataclasses import replace
from multiprocessing.connection import Pipe
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.backends.nvidia.compiler import get_ptxas

from diode_engine.choosing.summation import Instruction, order_of
from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.executor import BatchRequest, SpaceRequest
from diode_engine.collect.workers import direct_worker, operands, worker
from diode_engine.collect.workers.compile_worker import build_all
from diode_engine.collect.workers.direct_worker import Bench
from diode_engine.collect.workers.driver import Driver
from diode_engine.collect.workers.worker import ProblemOnGpu
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.errors import IntegrationError
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.binary import Binary, kernel_facts, registers_of
from diode_engine.inductor.lowering.kernel_class import ALL_FIXED, class_of, grid, shared_classes
from diode_engine.inductor.lowering.symbolic import family
from tests.collect.fake_cuda import FakeCuda, unpacked
from tests.collect.fake_device import LAUNCH_US, FakeDevice
from tests.samples import tile

DEVICE = torch.device("cuda", 0)
E4M3 = "float8_e4m3fn"
COUNTED = ("wgmma.mma_async", "mma.sync", "cp.async.cg", "cp.async.ca", "st.global")


@functools.cache
def compiled(problem, candidate, **more):
    """(what was rendered, its binary, Triton's own kernel)"""
    cls = class_of(problem, candidate, **more)
    with family(cls, DEVICE) as rendering:
        rendered = rendering.render(cls)
        binary = rendered.compile()
    return rendered, binary, rendered.autotuner.compile_results[0].kernel


PAIRS = {
    "bf16, rows of 16s": (
        Problem.make("mm", 1000, 2048, 2048, "bfloat16", b_layout="col"),
        tile(128, 128, 64, 3, 8),
    ),
    "columns of 4s": (
        Problem.make("mm", 100, 768, 8192, "float32", allow_tf32=True, a_layout="col"),
        tile(32, 32, 64, 2, 2),
    ),
    "few rows in TF32": (
        Problem.make("mm", 8, 512, 1024, "float32", allow_tf32=True),
        tile(16, 32, 32, 2, 2),
    ),
    "odd rows": (Problem.make("mm", 64, 512, 1025, "float16"), tile(64, 64, 32, 3, 4)),
    "bias": (Problem.make("addmm", 300, 512, 1040, "bfloat16"), tile(64, 64, 32, 3, 4)),
    "batches": (
        Problem.make("baddbmm", 100, 1024, 1024, "float16", B=4, a_layout="col", b_layout="col"),
        tile(64, 64, 32, 4, 4, "triton::bmm"),
    ),
    "an innermost batch": (
        Problem.make(
            "bmm", 256, 256, 256, "bfloat16", B=64, b_layout="col", a_batch="inner", b_batch="inner"
        ),
        tile(64, 64, 32, 3, 4, "triton::bmm"),
    ),
    "TMA": (
        Problem.make("mm", 1024, 1024, 1024, "bfloat16"),
        tile(128, 128, 64, 3, 8, "triton::mm_persistent_tma"),
    ),
}

OF_PAIRS = pytest.mark.parametrize(("problem", "candidate"), PAIRS.values(), ids=PAIRS)
HALF, FLOAT32 = (
    Problem.make("mm", 512, 1024, 4096, dtype, b_layout="col") for dtype in ("bfloat16", "float32")
)
EIGHT_BITS = Problem.make("scaled_mm", 512, 1024, 4096, E4M3)
# Tiles at the borders between instructions, and what rounds or adds in another way.
OF_ORDERS = [
    *((HALF, tile(m, 32, k, 3, w)) for m, k, w in (
        (64, 16, 4), (128, 64, 8), (64, 64, 2), (32, 64, 4), (64, 256, 4)
    )),
    (Problem.make("mm", 512, 272, 1000, "float16"), tile(64, 64, 32, 3, 4)),
    (Problem.make("bmm", 512, 272, 1024, "bfloat16", B=3), tile(64, 64, 32, 3, 4, "triton::bmm")),
    (replace(FLOAT32, allow_tf32=True), tile(64, 32, 16, 3, 4)),
    (replace(FLOAT32, allow_tf32=True), tile(16, 32, 32, 3, 4)),
    (FLOAT32, tile(64, 32, 16, 3, 4)),
    (EIGHT_BITS, tile(64, 32, 64, 3, 4)),
    (EIGHT_BITS, tile(16, 32, 64, 3, 4)),
    (Problem.make("scaled_mm", 512, 1024, 4096, E4M3, fast_accum=True), tile(64, 32, 64, 3, 4)),
]  # fmt: skip
IN_PTX = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", E4M3: "e4m3", "tf32": "tf32"}


@pytest.mark.parametrize(("problem", "candidate"), OF_ORDERS, ids=str)
def test_a_kernel_adds_in_the_order_that_is_recorded_of_it(problem, candidate):
    """By its PTX: the instruction, how many products it adds, and of which types."""
    order = order_of(problem, candidate, H200)
    ptx = compiled(problem, candidate)[2].asm["ptx"]
    found = set(re.findall(r"\b(?:wgmma\.mma_async|mma)\.sync\.aligned\.[\w.]+", ptx))
    if order.instruction is Instruction.FMA:
        assert not found
        assert "fma.rn.f32" in ptx
        return
    [instruction] = found
    assert instruction.startswith(order.instruction)
    assert re.search(rf"\.m\d+n\d+k{order.k}\.", instruction)
    types = instruction.partition(".f32.")[2].split(".")
    assert types[:2] == [IN_PTX[order.operands]] * 2
    assert order.accumulator == "float32"
    # a second accumulator needs additions of its own inside the loop, one for each result
    assert ("add.f32" in ptx or "add.rn.f32" in ptx) is bool(order.promoted_after)


@OF_PAIRS
def test_a_shared_kernel_is_built_like_the_problems_own(problem, candidate):
    rendered, shared, kernel = compiled(problem, candidate)
    _, own, own_kernel = compiled(problem, candidate, fixed=ALL_FIXED)
    shared_sizes = set() if problem.inner_batches else {f"size_{d}" for d in "MNK"}
    assert shared_sizes <= set(rendered.arguments)
    assert not any(what.startswith("size_") for what, _ in own.arguments)
    counts, own_counts = (
        {word: k.asm["ptx"].count(word) for word in COUNTED} for k in (kernel, own_kernel)
    )
    assert counts == own_counts
    assert shared.shared_bytes == own.shared_bytes
    assert (shared.warps, shared.scratch_bytes) == (own.warps, own.scratch_bytes)
    assert 0 < shared.registers <= 255


@OF_PAIRS
def test_arguments_are_those_of_tritons_signature(problem, candidate):
    _, binary, kernel = compiled(problem, candidate)
    # what Triton's own launcher would pack: pointers, 32-bit sizes, and two pointers more
    signature = [kind for kind in kernel.src.signature.values() if kind != "constexpr"]
    types = {"i32": "u32", "i64": "u64"}
    expected = ["u64" if kind[0] == "*" else types[kind] for kind in signature]
    assert [kind for _, kind in binary.arguments] == [*expected, "u64", "u64"]
    names = [what for what, _ in binary.arguments]
    assert names[-2:] == ["global_scratch", "profile_scratch"]
    assert names.index("a") + 1 == names.index("b") < names.index("out")
    assert ("bias" in names) == problem.op.biased


@OF_PAIRS
def test_sizes_and_grid_are_those_that_inductor_would_launch_with(problem, candidate):
    cls = class_of(problem, candidate, fixed=ALL_FIXED)
    with family(cls, DEVICE) as rendering:
        choice = rendering._choice
        blocks = {**choice.params.to_kwargs(), **candidate.config}
        shape = [problem.M, problem.N]
        if problem.op.batched:
            shape.insert(0, problem.B)
        assert grid(cls, problem, 132) == tuple(choice.template.grid(*shape, blocks))


def test_problems_of_a_class_are_rendered_alike():
    sources = set()
    for m, n, k in ((2048, 2048, 2048), (17 * 128, 16, 64), (999, 4096 + 16, 8192 + 64)):
        problem = Problem.make("mm", m, n, k, "bfloat16")
        cls = class_of(problem, tile(128, 16, 64, 3, 4))
        with family(cls, DEVICE) as rendering:
            sources.add(rendering.render(cls).source)
    assert len(sources) == 1


@pytest.mark.parametrize("registers", [255, 64])
def test_facts_are_those_that_the_compiler_tells(tmp_path, registers):
    """Of a kernel as it is, and of one that has to spill since it may have few registers."""
    _, binary, kernel = compiled(*PAIRS["odd rows"])
    ptx, replaced = re.subn(r"(\n\.(req|max)ntid)", rf"\n.maxnreg {registers}\1", kernel.asm["ptx"])
    assert replaced == 1
    (tmp_path / "kernel.ptx").write_text(ptx)
    command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    stores, loads = map(
        int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr).groups()
    )
    used = int(re.search(r"Used (\d+) registers", done.stderr)[1])

    cubin = (tmp_path / "kernel.cubin").read_bytes()
    facts = kernel_facts(cubin, registers_of(cubin), 4096)
    assert (facts.registers, facts.spill_stores, facts.spill_loads) == (used, stores, loads)
    assert (stores > 0) == (registers < 255)
    assert facts.instructions > 100
    assert binary.facts.registers == binary.registers
    assert binary.facts.shared_bytes == binary.shared_bytes


def test_a_cubin_of_another_form_has_no_facts():
    _, binary, _ = compiled(*PAIRS["odd rows"])
    blackwell = bytearray(binary.cubin)
    blackwell[0x30:0x34] = (100).to_bytes(4, "little")
    assert replace(binary, cubin=bytes(blackwell)).facts is None
    assert replace(binary, cubin=b"no ELF file").facts is None


def test_what_cannot_be_built_says_why():
    problem = Problem.make("mm", 4096, 4096, 4096, "float32")
    too_large = class_of(problem, tile(64, 64, 32, 5, 4))
    fits = class_of(problem, tile(32, 32, 32, 1, 4))
    small = replace(H200, shared_bytes_block=40000)
    results = [result for _, result in build_all([too_large, fits], small, DEVICE)]
    assert isinstance(results[0], Unbuilt)
    assert results[0].failure is Failure.OUT_OF_RESOURCES
    assert isinstance(results[1], Binary)


def test_a_family_renders_no_other():
    problem = Problem.make("mm", 512, 512, 512, "float16")
    with (
        family(class_of(problem, tile(32, 32, 64, 2, 4)), DEVICE) as rendering,
        pytest.raises(IntegrationError, match="another family"),
    ):
        rendering.render(class_of(problem, tile(32, 32, 128, 2, 4)))


def test_a_template_that_is_not_offered_is_nobodys_fault():
    odd = Problem.make("mm", 64, 513, 513, "bfloat16")  # no TMA descriptor for such rows
    cls = class_of(odd, tile(64, 64, 64, 3, 4, "triton::mm_persistent_tma"))
    [(_, result)] = build_all([cls], H200, DEVICE)
    assert isinstance(result, Unbuilt)
    assert result.failure is None


# The bench


class CpuCuda(FakeCuda):
    """Computes what the launched kernel would, in the memory that it is given."""

    def __init__(self, binaries, problem, device):
        super().__init__()
        self.problem, self.device = problem, device
        self.binaries = {binary.cubin: (cls, binary) for cls, binary in binaries.items()}
        self.spoiled = set()  # candidates whose kernel writes nothing
        self.takes = {}  # microseconds of the device
        self.launched = []
        self.fails_while_full = ""  # a call that fails until a kernel is unloaded
        self.on_launch = self.compute

    def _cuModuleUnload(self, module):
        self.fails.pop(self.fails_while_full, None)

    def compute(self, function, blocks, threads, shared, stream, packed):
        cls, binary = self.binaries[self.cubins[function]]
        given = unpacked(packed, binary.arguments)
        p = self.problem
        sizes = {
            d: given.get(f"size_{d}", 1) * e.value if f"size_{d}" in given else getattr(p, d)
            for d, e in cls.extents.items()
        }
        assert sizes == {d: getattr(p, d) for d in "BMNK"}
        assert blocks == grid(cls, p, 132)
        assert (threads, shared) == ((32 * binary.warps, 1, 1), binary.shared_bytes)
        self.launched.append((cls.candidate, given["a"], given["out"]))
        self.device.given("launch", self.takes.get(cls.candidate, 0.0), LAUNCH_US)
        if cls.candidate in self.spoiled:
            return
        shapes = p.input_shapes()
        inputs = [at(given[name], *shapes[name]) for name in shapes]
        stride = [math.prod(p.output_size[i + 1 :]) for i in range(len(p.output_size))]
        out = at(given["out"], p.output_size, stride, p.out_dtype)
        out.copy_(p.op.function(torch, p)(*inputs))


def at(address, size, stride, dtype):
    """A tensor over memory that is there."""
    dtype = getattr(torch, dtype)
    span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    memory = (ctypes.c_byte * (span * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(size, stride)


@pytest.fixture
def device(monkeypatch):
    """A clock in place of the GPU's, and little memory."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(operands, "MAX_POOL_BYTES", 1 << 21)
    return FakeDevice(monkeypatch)


CANDIDATES = [
    Candidate.make("aten::mm"),
    tile(32, 32, 32, 2, 4),
    tile(64, 32, 32, 3, 4),
    tile(64, 64, 32, 3, 4),
]
THREE = CANDIDATES[1:4]
SMALL = Problem.make("mm", 96, 80, 512, "float32")


@functools.cache
def built(cls, hardware):
    """The binary of a class, which many tests launch, or why there is none."""
    [(_, result)] = build_all([cls], hardware, DEVICE)
    return result


@pytest.fixture
def bench(device, tmp_path):
    """A function of a problem and its candidates that makes (bench, work, cuda), compiled."""
    hardware = replace(H200, l2_bytes=1 << 18)
    environment = Environment(hardware, "", str(torch.__version__), triton.__version__)

    def make(problem, candidates):
        binaries = Binaries(tmp_path / "binaries", environment)
        classes = {cls for cls in shared_classes(problem, candidates) if cls is not None}
        kernels = {cls: built(cls, hardware) for cls in classes}
        for cls, binary in kernels.items():
            binaries.put(cls, binary)
        cuda = CpuCuda(kernels, problem, device)
        lock = tmp_path / "lock"
        work = ProblemOnGpu(problem, DEVICE, lock)
        return Bench(torch.device("cpu"), lock, binaries, Driver(cuda)), work, cuda

    return make


def time_all(bench, work, candidates):
    return [timing for timing, _ in bench.time_all(work, candidates)]


def timed(bench, work, candidates):
    """The timings of one batch alone."""
    with work._stack:
        return time_all(bench, work, candidates)


LAUNCHED = [
    Problem.make("mm", 96, 80, 512, "float32"),
    Problem.make("addmm", 96, 80, 512, "float32", b_layout="col"),
    Problem.make("baddbmm", 64, 80, 64, "float32", B=3, a_layout="col"),
    Problem.make("bmm", 65, 81, 67, "float32", B=2),
    Problem.make("int_mm", 96, 80, 512, "int8", b_layout="col"),
    Problem.make("scaled_mm", 96, 80, 512, E4M3, scaling="row", fast_accum=True),
    Problem.make("scaled_mm", 96, 80, 512, E4M3, bias="vector", b_dtype="float8_e5m2"),
]


@pytest.mark.parametrize(
    ("problem", "template"),
    [
        *((p, "triton::bmm" if p.op.batched else "triton::mm") for p in LAUNCHED),
        pytest.param(
            Problem.make("scaled_mm", 96, 80, 512, "float8_e5m2", out_dtype="float32"),
            "triton::scaled_mm_device_tma_epilogue_scaling",
            marks=pytest.mark.skipif(
                torch.__version__ < (2, 11), reason="torch 2.10 has no descriptors of float8_e5m2"
            ),
        ),
    ],
    ids=str,
)
def test_launches_are_given_the_operands_and_compute_the_product(bench, problem, template):
    small = (64, 64, 32, 2, 4) if problem.op == "int_mm" else (32, 32, 32, 2, 4)
    offered = [tile(*small, template), tile(64, 64, 32, 3, 4, template)]
    if problem.op == "int_mm":
        offered[1] = tile(64, 64, 64, 3, 8, template)
    the_bench, work, cuda = bench(problem, offered)
    results = timed(the_bench, work, offered)
    assert [r.failure for r in results] == [None] * 2
    assert all(6 <= r.repeats <= 24 and r.min_us > 0 for r in results)
    # each launch reads other memory than the ones before it, and in turn
    addresses = [a for _, a, _ in cuda.launched]
    again = the_bench._data.operands._sets
    assert len(set(addresses)) == min(len(addresses) - 1, again)  # both were checked at one place
    turns = [c for c, _, _ in cuda.launched]
    assert sum(a != b for a, b in itertools.pairwise(turns)) >= 6


def checks(launched):
    """Where the first launches of a batch of three wrote to."""
    return [out for _, _, out in launched[:3]]


def test_later_batches_are_checked_on_the_operands_of_their_reference(bench):
    the_bench, work, cuda = bench(SMALL, THREE)
    cuda.spoiled = {CANDIDATES[2]}
    with work._stack:
        for _ in range(2):
            cuda.launched.clear()
            results = time_all(the_bench, work, THREE)
            assert [r.failure for r in results] == [None, "wrong_result", None]
            assert len(set(checks(cuda.launched))) == 3  # side by side


@pytest.mark.parametrize("slots", [2, 1, 0.5], ids=["two", "one", "larger than the room"])
def test_outputs_that_have_no_room_side_by_side_are_checked_in_slices(bench, monkeypatch, slots):
    """A slice finds no right result of the one before where it has written none itself."""
    the_bench, work, cuda = bench(SMALL, THREE)
    monkeypatch.setattr(operands, "MAX_OUTPUTS_BYTES", int(slots * 96 * 80 * 4))
    cuda.spoiled = {CANDIDATES[3]}
    results = timed(the_bench, work, THREE)
    assert [r.failure for r in results] == [None, None, "wrong_result"]
    assert len(set(checks(cuda.launched))) == max(1, int(slots))


def test_no_more_outputs_lie_side_by_side_than_there_is_memory_for(bench, monkeypatch):
    monkeypatch.setattr(operands, "MAX_POOL_BYTES", 1)  # of a problem's own size then
    monkeypatch.setattr(direct_worker, "FLUSH_BYTES", 1024)
    the_bench, work, cuda = bench(SMALL, THREE)
    results = timed(the_bench, work, THREE)
    assert [r.failure for r in results] == [None] * 3
    assert len(set(checks(cuda.launched))) == 1


def test_the_best_time_of_earlier_batches_is_known(bench):
    the_bench, work, cuda = bench(SMALL, THREE)
    slow = CANDIDATES[2]
    cuda.takes = {slow: 50}
    with work._stack:
        [alone] = time_all(the_bench, work, [slow])
        time_all(the_bench, work, [CANDIDATES[1]])
        [beside] = time_all(the_bench, work, [slow])
    assert alone.repeats > 6
    assert beside.repeats == 2  # much slower than that one


def test_wrong_missing_and_unbuildable_kernels_are_typed(bench):
    the_bench, work, cuda = bench(SMALL, CANDIDATES)
    cuda.spoiled = {CANDIDATES[2]}
    strange = tile(512, 512, 512, 3, 4)
    results = timed(the_bench, work, [*CANDIDATES, strange])
    failures = [r.failure for r in results]
    assert failures == [None, None, "wrong_result", None, "compile_error"]


def test_a_library_is_called_as_a_compiled_program_calls_it(monkeypatch):
    """By the sizes of the choice's inputs: before torch 2.13 aten::addmm's bias is a matrix."""
    problem = Problem.make("addmm", 64, 48, 32, "float32", bias="vector")
    bias, a, b, out = (torch.zeros(shape) for shape in ((48,), (64, 32), (32, 48), (64, 48)))
    given = []
    monkeypatch.setattr(
        kernels.ExternKernelCaller,
        "to_callable",
        lambda caller: lambda *operands, out: given.append([x.shape for x in operands]),
    )
    with kernels.graph_for(problem, DEVICE) as operands:
        offered = kernels.offered(problem.op, operands, space="DEFAULT")
        [choice] = [c for candidate, c in offered.items() if candidate.is_extern][:1]
        sizes = (48,), (64, 32), (32, 48)
        nodes = [SimpleNamespace(get_size=lambda size=size: size) for size in sizes]
        monkeypatch.setattr(choice.choice, "input_nodes", nodes)
        kernels.library_call(choice)(bias, a, b, out=out)
        nodes[0] = SimpleNamespace(get_size=lambda: (64, 48))
        kernels.launchable(choice, [bias, a, b], out)()
    assert given == [[(48,), (64, 32), (32, 48)], [(64, 48), (64, 32), (32, 48)]]


def test_a_sticky_error_ends_the_worker_unless_one_was_asked(bench, monkeypatch):
    the_bench, work, cuda = bench(SMALL, THREE)
    cuda.fails["cuLaunchKernel"] = 700
    exits = []

    def leave(code):
        exits.append(code)
        raise SystemExit

    monkeypatch.setattr(direct_worker.os, "_exit", leave)
    with work._stack:
        with pytest.raises(SystemExit):
            time_all(the_bench, work, THREE)
        [result] = time_all(the_bench, work, THREE[:1])
    assert exits == [1]
    assert result.failure == "illegal_access"


def test_what_cannot_be_launched_directly_is_timed_alone(bench, monkeypatch):
    the_bench, work, _ = bench(SMALL, THREE)
    the_bench._binaries.put(shared_classes(SMALL, THREE)[0], Unbuilt(None, "why"))
    monkeypatch.setattr(direct_worker, "Timer", lambda device: "its timer")
    monkeypatch.setattr(work, "time", lambda *asked: asked)
    with work._stack:
        first, *others = the_bench.time_all(work, THREE)
        assert first is None
        assert [timing.failure for timing, _ in others] == [None] * 2
        assert the_bench.time_all(work, THREE[:1]) == [(THREE[0], "its timer")]


def test_a_launch_that_is_refused_is_that_kernels_failure_alone(bench):
    the_bench, work, cuda = bench(SMALL, THREE)
    cuda.fails["cuLaunchKernel"] = 701
    results = timed(the_bench, work, [CANDIDATES[0], *THREE])
    assert [r.failure for r in results] == [None, *["out_of_resources"] * 3]


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuLaunchKernel"])
def test_a_batch_that_had_no_room_is_timed_again_with_all_memory_given_back(bench, call):
    """A full device says nothing of a kernel: other processes may have filled it."""
    the_bench, work, cuda = bench(SMALL, THREE)
    with work._stack:
        time_all(the_bench, work, THREE[:2])
        cuda.fails[call], cuda.fails_while_full = 2, call
        results = time_all(the_bench, work, THREE)
    assert [r.failure for r in results] == [None] * 3


def test_a_kernel_that_has_no_room_by_itself_is_out_of_memory(bench):
    the_bench, work, cuda = bench(SMALL, THREE[:1])
    cuda.fails["cuModuleLoadData"] = 2
    [result] = timed(the_bench, work, THREE[:1])
    assert result.failure == "out_of_memory"


def test_operands_of_one_type_are_in_memory_at_a_time(device, monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1 << 26)
    )
    pools = operands.Pools(torch.device("cpu"), 1 << 12)
    first = weakref.ref(pools.pool("in", torch.bfloat16, 1 << 10))
    assert pools.pool("in", torch.bfloat16, 1 << 10) is first()
    pools.pool("in", torch.float32, 1 << 10)
    assert first() is None


def test_the_kernels_that_were_not_used_for_longest_are_unloaded(bench, monkeypatch):
    monkeypatch.setattr(direct_worker, "MAX_LOADED", 2)
    the_bench, work, cuda = bench(SMALL, THREE)
    with work._stack:
        for which in (1, 2, 1, 3, 1):
            time_all(the_bench, work, [CANDIDATES[which]])
        assert cuda.calls.count("cuModuleLoadData") == 3
        assert cuda.calls.count("cuModuleUnload") == 1
        assert len(time_all(the_bench, work, THREE)) == 3  # more than may be loaded


def test_a_worker_gives_one_answer_to_each_request(bench, monkeypatch, tmp_path):
    the_bench, work, _ = bench(SMALL, THREE)
    work._stack.close()
    monkeypatch.setattr(worker, "name_of", lambda _: "GPU-1")
    monkeypatch.setattr(worker, "environment", lambda: "of this machine")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    ours, theirs = Pipe()
    serving = (theirs, tmp_path / "lock", DEVICE, the_bench.time_all)
    threading.Thread(target=worker.serve, args=serving, daemon=True).start()

    def ask(request):
        ours.send(request)
        assert ours.poll(60)
        return ours.recv()

    assert ours.recv() == ("GPU-1", "of this machine")
    space = ask(SpaceRequest(SMALL))
    assert set(space.default) < set(space.offered) > {*THREE}
    assert [timing.failure for timing, _ in ask(BatchRequest(SMALL, (*THREE,)))] == [None] * 3
    with monkeypatch.context() as patch:
        patch.setattr(worker.kernels, "graph_for", lambda *_: 1 / 0)
        assert "ZeroDivisionError" in ask(SpaceRequest(replace(SMALL, M=97))).reason
    assert ask(SpaceRequest(SMALL)) == space
    ours.close()

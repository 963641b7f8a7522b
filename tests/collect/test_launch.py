"""Kernels are launched with the arguments, grid and shared memory of the problem at hand."""

import pytest

from diode_engine.collect.workers.driver import Driver, DriverError
from diode_engine.collect.workers.launch import Launch
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import class_of
from tests.collect.fake_cuda import FakeCuda, unpacked
from tests.samples import tile

CLS = class_of(Problem.make("mm", 2048, 2048, 2048, "bfloat16"), tile(64, 32, 64))
ARGUMENTS = (
    ("a", "u64"), ("b", "u64"), ("out", "u64"), ("size_M", "u32"), ("size_N", "u32"),
    ("size_K", "u32"), ("global_scratch", "u64"), ("profile_scratch", "u64"),
)  # fmt: skip


def binary(shared=98304, scratch=0, arguments=ARGUMENTS):
    return Binary("triton_mm", b"cubin", 4, shared, 128, scratch, arguments)


def launch_of(cuda, problem, kernel, cls=CLS):
    driver = Driver(cuda)
    launch = Launch(driver, kernel, cls, problem, multiprocessors=132, scratch=lambda n: 4096 * n)
    launch.use(driver.load(kernel))
    return launch


def test_one_kernel_on_several_problems():
    cuda, seen = FakeCuda(), []
    cuda.on_launch = lambda *launch: seen.append((*launch[1:5], unpacked(launch[5], ARGUMENTS)))
    kernel = binary()
    for m, n, k in ((2048, 2048, 2048), (100, 4096, 64)):
        launch = launch_of(cuda, Problem.make("mm", m, n, k, "bfloat16"), kernel)
        launch((1 << 40, 2 << 40, 3 << 40), 77)
        launch((5, 6, 7), 77)
    assert [s[:4] for s in seen] == [((32 * 64, 1, 1), (128, 1, 1), 98304, 77)] * 2 + [
        ((2 * 128, 1, 1), (128, 1, 1), 98304, 77)
    ] * 2
    empty = {"global_scratch": 0, "profile_scratch": 0}
    assert seen[2][4] == {
        "a": 1 << 40, "b": 2 << 40, "out": 3 << 40,
        "size_M": 100, "size_N": 4096 // 16, "size_K": 64 // 64, **empty,
    }  # fmt: skip
    assert (seen[3][4]["a"], seen[3][4]["b"], seen[3][4]["out"]) == (5, 6, 7)


def test_scratch_and_workspace_are_given_where_the_kernel_takes_them():
    cuda, seen = FakeCuda(), []
    arguments = (*ARGUMENTS[:6], ("workspace", "u64"), *ARGUMENTS[6:])
    cuda.on_launch = lambda *launch: seen.append(unpacked(launch[5], arguments))
    launch = launch_of(
        cuda, Problem.make("mm", 8192, 8192, 64, "bfloat16"), binary(0, 1 << 14, arguments)
    )
    launch((1, 2, 3), 0)
    address = 4096 * (128 * 256 << 14)
    assert (seen[0]["workspace"], seen[0]["global_scratch"]) == (address, address)


def test_a_problem_of_another_class_is_refused():
    with pytest.raises(CollectionError, match="not compiled for"):
        launch_of(FakeCuda(), Problem.make("mm", 2048, 2048, 2049, "bfloat16"), binary())


def test_shared_memory_beyond_48_kb_is_asked_for():
    cuda = FakeCuda()
    Driver(cuda).load(binary(49152))
    assert "cuFuncSetAttribute" not in cuda.calls
    Driver(cuda).load(binary(49153))
    assert {"cuFuncSetCacheConfig", "cuFuncSetAttribute"} <= set(cuda.calls)


def test_a_kernel_that_does_not_fit_is_out_of_resources_and_unloaded():
    cuda = FakeCuda()
    with pytest.raises(DriverError) as error:
        Driver(cuda).load(binary(232449))
    assert error.value.failure is Failure.OUT_OF_RESOURCES
    assert not error.value.sticky
    assert cuda.calls[-1] == "cuModuleUnload"


@pytest.mark.parametrize(
    ("code", "failure", "sticky"),
    [
        (1, Failure.LAUNCH_ERROR, False),
        (2, Failure.OUT_OF_MEMORY, False),
        (700, Failure.ILLEGAL_ACCESS, True),
        (701, Failure.OUT_OF_RESOURCES, False),
        (719, Failure.LAUNCH_ERROR, True),
    ],
)
def test_what_the_driver_refuses_is_typed(code, failure, sticky):
    cuda = FakeCuda(cuLaunchKernel=code)
    launch = launch_of(cuda, Problem.make("mm", 64, 64, 64, "bfloat16"), binary())
    with pytest.raises(DriverError, match=f"CUDA error {code}.*what went wrong") as error:
        launch((1, 2, 3), 0)
    assert (error.value.failure, error.value.sticky) == (failure, sticky)

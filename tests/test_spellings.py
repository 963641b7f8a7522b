"""Element types and GPUs are read in every usual spelling."""

import click
import pytest

from diode_engine.cli.options import TypeChoice
from diode_engine.core.hardware import KNOWN, find_name
from diode_engine.core.operand import TYPES, DType
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError
from diode_engine.problems.sources.wanted import Wanted
from diode_engine.store.datasets import reading, torch_diode

H100 = "NVIDIA H100 80GB HBM3"
GPUS = (*KNOWN, "NVIDIA H100 PCIe", "NVIDIA L40S")


@pytest.mark.parametrize(
    ("dtype", "spellings"),
    [
        ("float16", ("fp16", "half", "f16", "torch.float16", "Float16")),
        ("bfloat16", ("bf16", "torch.bfloat16", "BF16")),
        ("float32", ("fp32", "f32")),
        ("float8_e4m3fn", ("e4m3",)),
    ],
)
def test_a_type_in_any_spelling_is_the_same_type(dtype, spellings):
    for spelling in spellings:
        assert DType(spelling) is DType(dtype)
    fields = Problem.make("mm", 64, 64, 64, dtype).to_dict()
    short = {**fields, "dtype": spellings[0]}
    assert Problem.from_dict(short) == Problem.from_dict(fields)
    assert Problem.from_dict(short).to_dict()["dtype"] == dtype  # one is shown
    with pytest.raises(RecordError, match="must be one of float16, bfloat16"):
        Problem.from_dict({**fields, "dtype": "float17"})


def test_types_that_are_wanted_may_be_in_any_spelling():
    problem = Problem.make("mm", 64, 64, 64, "bfloat16")
    assert Wanted(types=("bfloat16",)).holds(problem)
    assert Wanted(types=("torch.bfloat16", "tf32")) == Wanted(types=("bf16", "tf32"))
    assert not Wanted(types=("float32",)).holds(
        Problem.make("mm", 64, 64, 64, "float32", allow_tf32=True)
    )


def test_an_option_takes_a_type_in_any_spelling():
    of_command = TypeChoice(TYPES)
    for given, short in (("bfloat16", "bf16"), ("fp16", "fp16"), ("tf32", "tf32")):
        assert of_command.convert(given, None, None) == short
    with pytest.raises(click.BadParameter, match="'float17' is not one of 'bf16'"):
        of_command.convert("float17", None, None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("H200", "NVIDIA H200"),
        ("nvidia-h200", "NVIDIA H200"),
        ("h100 80gb", H100),
        ("NVIDIA H100", "NVIDIA H100"),
        ("L40S", "NVIDIA L40S"),
        ("L40", None),
        ("A100", None),  # of 40 or of 80 GB
        ("NVIDIA", None),
        ("", None),
    ],
)
def test_a_gpu_is_found_by_its_words(name, meant):
    assert find_name(name, GPUS) == meant


def test_the_longest_name_is_meant_where_the_others_are_its_beginnings():
    assert find_name("H100", ("NVIDIA H200", "NVIDIA H100", H100)) == H100
    assert find_name("H100", (H100, "NVIDIA H100 PCIe")) is None


def test_a_file_may_name_a_gpu_shortly():
    assert reading._environment({"hardware": "H200"}).hardware == KNOWN["NVIDIA H200"]
    assert torch_diode._hardware("H100") == KNOWN[H100]
    with pytest.raises(RecordError, match="not one that Diode knows by name"):
        reading._environment({"hardware": "A100"})

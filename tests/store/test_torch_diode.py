"""torch-diode's datasets: read as its collector means them, or refused with the place."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.errors import DatasetError
from diode_engine.store import Store, dataset_key, import_dataset, read_dataset


def shape(**fields: Any) -> str:
    return json.dumps(
        {
            "version": 1, "B": 1, "M": 64, "M_dtype": "bfloat16", "N": 128, "K": 256,
            "K_dtype": "bfloat16", "out_dtype": "bfloat16", "out_size": [1, 64, 128],
            "out_stride": [8192, 128, 1],
        } | fields
    )  # fmt: skip


def config(**fields: Any) -> dict[str, Any]:
    return {
        "ACC_TYPE": "tl.float32", "ALLOW_TF32": False, "EVEN_K": False, "USE_FAST_ACCUM": False,
        "block_k": 32, "block_m": 64, "block_n": 16, "grid": 1, "group_m": 8,
        "name": "mm_config", "num_stages": 3, "num_warps": 4, "version": 1,
    } | fields  # fmt: skip


def timed(time: Any = 0.025, **fields: Any) -> dict[str, Any]:
    return {"config": config(**fields), "time": time, "version": 1}


def document(
    solutions: dict[str, Any], op: str = "mm", hardware: str = "NVIDIA H100"
) -> dict[str, Any]:
    """As Dataset.to_dict of torch-diode makes it."""
    solution = {
        text: {"timed_configs": configs, "version": 1} for text, configs in solutions.items()
    }
    operation = {op: {"solution": solution, "version": 1}}
    return {"hardware": {hardware: {"operation": operation, "version": 1}}, "version": 1}


def write(path: Path, content: Any) -> Path:
    packed = path.suffix == ".msgpack"
    path.write_bytes(msgpack.packb(content) if packed else json.dumps(content).encode())
    return path


@pytest.mark.parametrize("suffix", [".json", ".msgpack"])
def test_a_dataset_is_imported_once(tmp_path, suffix):
    file = write(tmp_path / f"a{suffix}", document({shape(): [timed(), timed(0.5, block_m=32)]}))
    with Store.open(tmp_path / "a.db") as store:
        done = import_dataset(store, file)
        again = import_dataset(store, file)
        table = store.read()
    assert (done.timings, done.left_out, again.new, again.there) == (2, 0, False, 2)
    (problem,) = table.problems
    assert (problem.op, problem.B, problem.M, problem.N, problem.K) == ("mm", 1, 64, 128, 256)
    assert (problem.dtype, problem.out_dtype) == (DType.BFLOAT16, DType.BFLOAT16)
    assert (problem.a.layout, problem.b.layout) == (Layout.ROW, Layout.ROW)
    # milliseconds; the very kernel that Inductor has of Diode's own timings
    expected = Candidate.make(
        "triton::mm", BLOCK_M=64, BLOCK_N=16, BLOCK_K=32, GROUP_M=8, num_stages=3, num_warps=4
    )
    times = dict(zip((table.candidates[i] for i in table.candidate), table.time_us, strict=True))
    assert times[expected] == 25.0
    (environment,) = table.environments
    assert environment.hardware.name == "NVIDIA H100"
    assert (environment.torch, environment.triton) == ("", "")


def test_addmm_has_a_whole_bias_and_bmm_kernels_of_its_own(tmp_path):
    added = read_dataset(write(tmp_path / "a.json", document({shape(): [timed()]}, "addmm")))
    assert added.problems[0].bias is Bias.MATRIX
    assert added.candidates[0].template == "triton::mm"
    batched = document({shape(B=4): [timed()]}, "bmm")
    table = read_dataset(write(tmp_path / "b.json", batched))
    assert (table.problems[0].B, table.candidates[0].template) == (4, "triton::bmm")


def test_tf32_is_what_the_config_says(tmp_path):
    single = shape(M_dtype="float32", K_dtype="float32", out_dtype="float32")
    content = document({single: [timed(), timed(ALLOW_TF32=True)]})
    table = read_dataset(write(tmp_path / "a.json", content))
    assert [table.problems[i].allow_tf32 for i in table.problem] == [False, True]


def test_a_config_as_a_text_is_the_older_form(tmp_path):
    older = document({shape(): [timed() | {"config": json.dumps(config())}]})
    older["hardware"]["NVIDIA H100"]["operation"]["mm"]["name"] = "mm"
    newer = write(tmp_path / "b.json", document({shape(): [timed()]}))
    assert dataset_key(read_dataset(write(tmp_path / "a.json", older))) == dataset_key(
        read_dataset(newer)
    )


@pytest.mark.parametrize("suffix", [".json", ".msgpack"])
@pytest.mark.parametrize(
    ("op", "given", "what"),
    [
        ("mm", {}, timed(math.inf)),
        ("mm", {}, timed(math.nan)),
        ("mm", {}, timed(block_m=0, block_n=0, block_k=0)),
        ("mm", {"M": "s77"}, timed()),
        ("mm", {"M_dtype": "complex64"}, timed()),
        ("mm", {"K_dtype": "float16"}, timed()),
        ("mm", {"out_stride": [8192, 1, 64]}, timed()),
        ("convolution", {}, timed()),
    ],
)
def test_what_is_no_timing_of_ours_is_left_out_and_counted(tmp_path, op, given, what, suffix):
    content = document({shape(): [timed()]})
    more = document({shape(**given): [what, what]}, op, "NVIDIA A100-SXM4-80GB")
    content["hardware"] |= more["hardware"]
    with Store.open(tmp_path / "a.db") as store:
        done = import_dataset(store, write(tmp_path / f"a{suffix}", content))
    assert (done.timings, done.left_out) == (1, 2)
    with (
        Store.open(tmp_path / "b.db") as store,
        pytest.raises(DatasetError, match="None of its 2 timings"),
    ):
        import_dataset(store, write(tmp_path / f"b{suffix}", more))


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A dataset whose first timed config (as `t`) or whatever is above it is another one."""
    content = copy.deepcopy(document({shape(): [timed()]}))
    change(content)
    return content


def at(content: dict[str, Any]) -> Any:
    return content["hardware"]["NVIDIA H100"]["operation"]["mm"]["solution"][shape()]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"hardware": []}, "hardware is []; it must be an object"),
        ({"hardware": {"Voodoo 2": {}}}, "'Voodoo 2' is not one that Diode knows by name"),
        ({"hardware": {"NVIDIA H100": {}}}, "hardware.NVIDIA H100 lacks the field operation"),
        (document({"{": [timed()]}), "solution[0]: '{' is not valid JSON"),
        (document({"7": [timed()]}), "solution[0] is 7; it must be an object"),
        (document({'{"M": 1}': [timed()]}), "solution[0] lacks the fields B, N, K"),
        (document({shape(M=0): [timed()]}), "M is 0"),
        (document({shape(B=2): [timed()]}), "only bmm, baddbmm, "),
        (document({shape(out_size=3): [timed()]}), "out_size is 3; it must be a list"),
        (document({shape(): None}), "timed_configs is None; it must be a list"),
        (document({shape(): [timed(0)]}), "timed_configs[0].time is 0; it must be a positive"),
        (document({shape(): [timed(True)]}), "time is True"),
        (document({shape(): [timed(10**400)]}), "an hour at most"),
        (document({shape(): [timed(-math.inf)]}), "time is -inf"),
        (document({shape(): [timed(block_m="64")]}), "config.block_m is '64'"),
        (document({shape(): [timed(num_warps=None)]}), "config.num_warps is None"),
        (document({shape(): [timed(ALLOW_TF32=1)]}), "ALLOW_TF32 is 1"),
        (changed(lambda c: at(c)["timed_configs"][0].pop("time")), "time is None"),
        (changed(lambda c: at(c)["timed_configs"][0].update(config=3)), "config is 3"),
        (changed(lambda c: at(c)["timed_configs"].append(4)), "timed_configs[1] is 4"),
    ],
)
def test_a_malformed_one_is_refused_with_the_place(tmp_path, content, said):
    with Store.open(tmp_path / "a.db") as store:
        with pytest.raises(DatasetError) as caught:
            import_dataset(store, write(tmp_path / "a.json", content))
        assert not store.runs()
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "a.json"))

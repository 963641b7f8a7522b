"""What can be tested of benchmarks/flex_attention.py without a GPU: its calls, masks, launches and
report. Its kernels are compiled in tests/inductor_nogpu/test_flex_kernels.py."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from diode_engine.inductor.lowering.binary import Binary

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("flex_", "measuring")):
            del sys.modules[name]


def test_the_plan_is_200_calls_of_every_kind() -> None:
    import flex_problems as fp

    problems = fp.plan()
    assert len({p.key for p in problems}) == len(problems) == 200
    assert problems == fp.plan()
    assert {p.family.kind for p in problems} == {"forward", "backward", "decoding"}
    assert {p.family.mask for p in problems} == {"dense", "causal", "window", "document"}
    assert {p.family.head for p in problems} == {64, 128, 256}
    assert min(p.length for p in problems) == 128
    assert max(p.length for p in problems) == 32768


@pytest.mark.parametrize("mask", ["causal", "window", "document"])
def test_blocks_are_those_of_create_block_mask(mask: str) -> None:
    import flex_problems as fp

    length = 4096
    ids = fp.documents(length)

    def mask_mod(b: Any, h: Any, m: Any, n: Any) -> Any:
        kept = m >= n
        if mask == "window":
            return kept & (m - n < fp.WINDOW_LENGTH)
        return kept & (ids[m] == ids[n]) if mask == "document" else kept

    expected = create_block_mask(mask_mod, None, None, length, length, device="cpu")
    family = fp.Family("backward", 64, "bfloat16", mask, 4, 4)
    lists = fp.block_lists(family, length)
    for name, found in lists.items():
        wanted = getattr(expected, name)
        if name.endswith("num_blocks"):
            assert torch.equal(found, wanted), name
            continue
        counts = lists[name.replace("indices", "num_blocks")]
        for row, count in enumerate(counts[0, 0].tolist()):
            assert torch.equal(found[0, 0, row, :count], wanted[0, 0, row, :count]), name
    shapes = fp.shapes(family, 1, length, length // fp.BLOCK)
    assert {name: tuple(x.shape) for name, x in lists.items()} == {
        name: size for name, (size, _) in shapes.items() if name in lists
    }
    assert len(lists) == sum(name.endswith(("blocks", "indices")) for name in shapes)


def test_a_launch_passes_the_tensors_by_name_and_the_sizes_by_symbol() -> None:
    import flex_attention as script
    import flex_kernels as fk
    import flex_problems as fp

    names = ["arg_Q", "arg_K", "arg_V", "arg_LSE", "arg_MAX", "arg_KV_NUM_BLKS", "arg_KV_IDX",
             "arg_FULL_KV_NUM_BLKS", "arg_FULL_KV_IDX", "in_ptr9", "out_ptr0"]  # fmt: skip
    arguments = [*((n, "u64") for n in names), ("ks0", "u32"), ("ks1", "u32"), ("x", "u64")]
    binary = Binary("kernel", b"", 4, 1024, 0, 0, 0, 1, tuple(arguments))
    problem = fp.Problem(fp.Family("forward", 64, "bfloat16", "document", 4, 2), 2, 512)
    bench = script.Bench(problem, torch.device("cpu"), 1 << 10)
    passed: list[Any] = []

    def launch_kernel(*args: Any) -> int:
        packed = args[9]
        for (_, kind), at in zip(arguments, packed, strict=True):
            size = ctypes.c_uint64 if kind == "u64" else ctypes.c_uint32
            passed.append(size.from_address(at).value)
        passed.append(args[1:4])
        return 0

    driver = SimpleNamespace(launch_kernel=launch_kernel, check=None)
    loaded = SimpleNamespace(function=None)
    kernel = fk.Kernel(binary, ("blocks", "batch"))
    launch = bench.launch(driver, kernel, loaded, (128, 64, 3, 4))
    place = bench.next()
    launch(place, 0)
    *values, grid = passed
    given = dict(zip([name for name, _ in arguments], values, strict=True))
    assert [given[n] for n in bench.changing] == list(place)
    assert (given["ks0"], given["ks1"], given["x"]) == (4, 2, 0)
    assert grid == (4, 2, 4)
    assert all(given[name] for name in names)


def test_the_report_takes_the_second_timing_of_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import flex_attention as script
    import flex_problems as fp

    family = fp.Family("forward", 64, "bfloat16", "causal", 4, 2)
    rows = []
    for batch in (1, 2):
        problem = fp.Problem(family, batch, 512)
        rows += [
            script._row(problem, (64, 64, 3, 4), 1, us=10.0, default_us=12.0),
            script._row(problem, (32, 64, 3, 4), 3, error="shared memory: too much"),
            script._row(problem, (128, 64, 3, 4), 2, us=8.0, default_us=12.0),
            script._row(problem, (128, 64, 3, 4), "confirmed", us=10.0, default_us=11.0),
        ]
    script.report(rows)
    said = capsys.readouterr().out
    assert "best of max-autotune's configs, as first timed: 1.200" in said
    assert "best of all configs, as first timed: 1.500" in said
    assert "best of all, timed once more: 1.100" in said
    assert "{'shared memory': 2}" in said


def test_rows_of_an_earlier_run_are_not_timed_again(tmp_path: Path) -> None:
    import flex_attention as script
    import flex_problems as fp

    problem = fp.plan()[0]
    rows = script.Rows(tmp_path / "rows")
    rows.add(script._row(problem, (64, 64, 3, 4), 1, us=1.0, default_us=1.0))
    with (tmp_path / "rows").open("a") as file:
        file.write('{"problem": "cut o')
    again = script.Rows(tmp_path / "rows")
    assert again.done == {(problem.key, (64, 64, 3, 4))}


def test_a_run_times_every_config_beside_the_default_and_the_best_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the run but the GPU and the compilers."""
    import time
    from collections import defaultdict

    import flex_attention as script
    import flex_kernels as fk
    import flex_problems as fp

    names = ["arg_Q", "arg_K", "arg_V", "arg_M", "arg_L", "out_ptr0", "arg_DO", "arg_DQ", "arg_DV"]
    default, slow, fast, broken = (64, 64, 1, 4), (32, 64, 1, 4), (128, 64, 1, 4), (64, 128, 1, 4)
    families = [fp.Family("forward", 64, "bfloat16", "causal", 2, 2),
                fp.Family("decoding", 64, "bfloat16", "dense", 2, 1, 1)]  # fmt: skip
    problems = [fp.Problem(f, 1, 256) for f in families]

    def kernel(us: float) -> Any:
        arguments = tuple((name, "u64") for name in names)
        return fk.Kernel(Binary("kernel", b"", int(us), 0, 0, 0, 0, 1, arguments), (), split=2)

    class Timer:
        def once(self, contender: Any, place: Any) -> Any:
            contender.launch(place, 0)
            return lambda: contender.times.append(1.0)

        def compete(self, contenders: Any, operands: Any) -> None:
            for each in contenders:
                assert operands.next()
                each.times = [float(each.launch._head[4]) / 32] * 6

    def launch_kernel(*args: Any) -> int:
        bench = made[-1]
        for tensor in (bench.sets[0][-1], *bench._partial):
            tensor.fill_(1.0)
        return 0

    made: list[Any] = []

    class Bench(script.Bench):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(script, "Bench", Bench)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    rows = script.Rows(tmp_path / "rows")
    runner = object.__new__(script.Runner)
    vars(runner).update(
        _problems=problems, _rows=rows, _deadline=time.monotonic() + 100,
        _device=torch.device("cpu"), _l2=1 << 10, _timer=Timer(),
        _driver=SimpleNamespace(
            load=lambda binary: SimpleNamespace(function=None), unload=lambda _: None,
            launch_kernel=launch_kernel, check=None,
        ),
        _states=defaultdict(script.State),
    )  # fmt: skip
    for family in families:
        found = {slow: kernel(9), fast: kernel(4), broken: "shared memory: too much"}
        runner.take(script.Job(family, list(found), 2), found)  # before the default is there
        assert not [r for r in rows.rows if r["mask"] == family.mask]
        runner.take(script.Job(family, [default], 0), {default: kernel(6)})
        fixed = script.replace(family, fixed=(1, 256))
        runner.take(script.Job(fixed, [default], 1), {default: kernel(5)})
    assert runner.best() == dict.fromkeys(problems, fast)
    runner.confirm(time.monotonic() + 100)
    assert not runner.best()
    for problem in problems:
        of = [r for r in rows.rows if r["problem"] == problem.key]
        assert [(r["config"], r["tier"], r.get("us"), r.get("default_us")) for r in of] == [
            (broken, 2, None, None), (slow, 2, 9.0, 6.0), (fast, 2, 4.0, 6.0),
            ("fixed", 1, 5.0, 6.0), (fast, "confirmed", 4.0, 6.0),
        ]  # fmt: skip

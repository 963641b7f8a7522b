"""What can be tested of benchmarks/flex_attention.py without a GPU: its calls, masks, launches and
report. Its kernels are compiled in tests/inductor_nogpu/test_flex_kernels.py."""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

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
            script._row(problem, "check", 1, off=0.003),
        ]
    slower = fp.Problem(family, 4, 512)  # none is faster than the default, so none is timed again
    rows.append(script._row(slower, (64, 64, 3, 4), 1, us=12.0, default_us=11.0))
    script.report(rows)
    said = capsys.readouterr().out
    assert "2 checked, 0 wrong, at most 0.003 off" in said
    assert "best of max-autotune's configs, as first timed: 1.129" in said  # 1.2 ** (2 / 3)
    assert "best of all configs, as first timed: 1.310" in said
    assert "best of all, timed once more: 1.066" in said
    assert "over 1.02 for 67%" in said
    assert "the same where configs of the exhaustive space were tried: 1.100" in said
    assert "{'shared memory': 2}" in said


@pytest.mark.parametrize("kind", ["forward", "backward", "decoding"])
@pytest.mark.parametrize("mask", ["dense", "causal", "window", "document"])
def test_what_a_default_should_compute_is_what_torch_says(kind: str, mask: str) -> None:
    import flex_attention as script
    import flex_problems as fp

    if kind == "decoding" and mask != "dense":
        pytest.skip("decoding has no mask here")
    length = 2048  # longer than the window
    problem = fp.Problem(fp.Family(kind, 16, "bfloat16", mask, 2, 1, 1), 1, length)
    bench = script.Bench(problem, torch.device("cpu"), 1 << 10)
    query, key, value, *others = (x.float() for x in bench.sets[0])
    blocks = create_block_mask(
        lambda b, h, m, n: {
            "dense": m >= 0, "causal": m >= n, "window": (m >= n) & (m - n < fp.WINDOW_LENGTH),
            "document": (m >= n) & (bench._documents[m] == bench._documents[n]),
        }[mask], None, None, query.shape[2], length, device="cpu",
    )  # fmt: skip
    if kind != "backward":
        found = flex_attention(query, key, value, block_mask=blocks, enable_gqa=True)
        torch.testing.assert_close(bench.expected(), found)
        return
    # Of these saved logarithms the weights are no softmax; their sum's gradient is what a kernel
    # of the backward computes for the keys.
    key.requires_grad_()
    keys, values = (x.repeat_interleave(2, 1) for x in (key, value))
    scores = query @ keys.transpose(2, 3) / 4
    seen = create_mask(blocks.mask_mod, None, None, length, length, device="cpu")
    weights = torch.where(seen, scores.exp() / 2, 0.0)
    (weights * (others[0] @ values.transpose(2, 3) - 1)).sum().backward()
    torch.testing.assert_close(bench.expected(), key.grad, rtol=1e-4, atol=1e-3)


def _worker(folder: Path, body: str) -> tuple[str, ...]:
    """The command of a process that speaks as flex_compile_worker.py does."""
    script = folder / "worker.py"
    script.write_text(
        f"""
import os, pickle, sys
hidden = os.environ.get("CUDA_VISIBLE_DEVICES")  # before anything is imported
sys.path.insert(0, {str(BENCHMARKS)!r})
from multiprocessing.connection import Connection
from diode_engine.collect.processes import protocol
connection = Connection(int(sys.argv[1]))
protocol.unpack(connection.recv_bytes())
{body}
"""
    )
    return sys.executable, str(script)


ANSWERS = """
connection.send_bytes(protocol.pack({"ready": True}))
while True:
    try:
        job = pickle.loads(protocol.unpack(connection.recv_bytes())["job"])
    except EOFError:
        break
    if (13,) in job.configs:
        os._exit(1)
    found = {config: f"hidden: {hidden!r}" for config in job.configs}
    connection.send_bytes(protocol.pack({"found": pickle.dumps(found)}))
"""


def test_a_process_that_dies_costs_only_the_config_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flex_compilers as fc
    import flex_problems as fp

    from diode_engine.core.hardware import H200

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    family = fp.Family("forward", 64, "bfloat16", "causal", 4, 2)
    todo = [fc.Job(family, tuple((i,) for i in range(at, at + 5)), 0) for at in range(0, 25, 5)]
    compilers = fc.Compilers(2, H200, tmp_path / "kept", _worker(tmp_path, ANSWERS))
    try:
        said = [found for _, found in compilers.compiled(todo, time.monotonic() + 120)]
    finally:
        compilers.close()
    by_config = {config: kernel for found in said for config, kernel in found.items()}
    assert by_config == {(i,): fc.DIED if i == 13 else "hidden: ''" for i in range(25)}


def test_why_no_process_can_be_started_is_said(tmp_path: Path) -> None:
    import flex_compilers as fc
    import flex_problems as fp

    from diode_engine.core.hardware import H200
    from diode_engine.errors import CollectionError

    family = fp.Family("forward", 64, "bfloat16", "causal", 4, 2)
    command = _worker(tmp_path, "raise SystemExit('There is a GPU here.')")
    compilers = fc.Compilers(1, H200, tmp_path / "kept", command)
    try:
        with pytest.raises(CollectionError, match=r"cannot be started.*There is a GPU here"):
            list(compilers.compiled([fc.Job(family, ((1,),), 0)], time.monotonic() + 120))
    finally:
        compilers.close()


def test_the_order_is_drawn_by_the_seed_and_keeps_families_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import flex_attention as script
    import flex_problems as fp

    monkeypatch.setattr(script.flex_kernels, "configs", lambda _: {(1,): 0, (2,): 1, (3,): 2})

    plan = fp.plan()
    first, again, other = (script.drawn(plan, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert {*first} == {*other} == {*plan}
    changes = sum(a.family != b.family for a, b in itertools.pairwise(first))
    assert changes == len({p.family for p in plan}) - 1
    todo = script.jobs(first, set())
    assert [job.tier for job in todo] == sorted(job.tier for job in todo)
    assert [job.family for job in todo if job.tier == 0] == [
        *dict.fromkeys(p.family for p in first)
    ]


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

        def time_in_turn(self, contenders: Any, operands: Any) -> None:
            for each in contenders:
                assert operands.next()
                each.times = [float(each.launch._head[4]) / 32] * 6

    def launch_kernel(*args: Any) -> int:
        bench = made[-1]
        for tensor in (bench.sets[0][-1], *bench._partial):
            tensor.fill_(1.0)
        return 0

    monkeypatch.setattr(script.Bench, "expected", lambda self: 1.25 * self.output())

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
        _states=defaultdict(script.State), _checked=script.smallest(problems),
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
            (broken, 2, None, None), ("check", 2, None, None), (slow, 2, 9.0, 6.0),
            (fast, 2, 4.0, 6.0), ("fixed", 1, 5.0, 6.0), (fast, "confirmed", 4.0, 6.0),
        ]  # fmt: skip
        assert of[1]["off"] == 0.25

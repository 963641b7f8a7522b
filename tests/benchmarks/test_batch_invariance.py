"""benchmarks/batch_invariance.py without a GPU: what it calls equal, and its tables."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
import torch


@pytest.fixture
def script(monkeypatch):
    """The tasks, with few rows, on the CPU."""
    import invariance_tasks

    for name, value in {
        "DEVICE": torch.device("cpu"), "ROWS": 64, "BATCHES": (1, 5, 33), "SIZES": (1, 4, 16, 64),
        "FEWER_SIZES": (1, 64), "PAIRS": 40,
    }.items():  # fmt: skip
        monkeypatch.setattr(invariance_tasks, name, value)
    return invariance_tasks


def in_order(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The product of each row by itself."""
    return torch.stack([w.double() @ row.double() for row in x]).to(x.dtype)


def by_size(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A product whose rounding depends on the number of rows."""
    return in_order(x, w) if len(x) < 10 else (in_order(x, w).float() * 1.01).to(x.dtype)


def test_pairs_of_batches_are_equal_if_each_row_is(script):
    layer = script.Layer("", (torch.randn(64, 48).bfloat16(),), (torch.randn(32, 48).bfloat16(),))
    row = script.compare_pairs(in_order, in_order, layer)
    assert (row["pairs"], row["equal"], row["unequal"]) == (40, 40, [])
    row = script.compare_pairs(by_size, by_size, layer)
    assert 0 < row["equal"] < 40
    assert all(small < 10 <= large for small, large in row["unequal"])
    row = script.compare_pairs(by_size, in_order, layer)  # the larger is of any size
    assert any(large not in script.SIZES for _, large in row["unequal"])


@pytest.mark.parametrize(
    "name",
    ["o", "o with bias and SiLU", "o in TF32", "o in float8 by row", "o in float8 by tensor"],
)
def test_a_layer_computes_the_product_of_its_inputs(name, script, monkeypatch):
    bare = name if "bias" in name else "o"
    for each in (name, bare):
        monkeypatch.setitem(script.LAYERS, each, (48, 64))
    layer = script.Layer.make(name)
    chosen = torch.tensor([6, 0, 2])
    out = layer.program(*layer.inputs(chosen))
    assert out.shape == (3, 48)
    # On a CPU a float32 product of 3 rows may differ from one of 8 in its last bits.
    torch.testing.assert_close(out, layer.program(*layer.inputs(slice(8)))[chosen])
    plain = script.Layer.make(bare)
    right = plain.program(*plain.inputs(chosen)).double()
    assert (out.double() - right).norm() < 0.1 * right.norm()
    assert layer.sizes == ((1, 4, 16, 64) if " in " not in name else (1, 64))
    assert script.compare_pairs(layer.program, layer.program, layer)["pairs"] == 40


@pytest.mark.parametrize("kind", ["mm bfloat16", "bmm bfloat16", "scaled_mm float8_e4m3fn"])
def test_data_of_each_kind_is_what_its_name_says(script, kind):
    problem = script.problem_of(kind, 64, 48, 144)
    out = getattr(torch, problem.out_dtype)
    tiny = torch.finfo(getattr(torch, problem.dtype)).tiny
    given = {data: script.operands(problem, data) for data in script.DATA}
    assert all(list(each) == list(problem.input_shapes()) for each in given.values())
    exact = {d: torch.matmul(x["a"].double(), x["b"].double()) for d, x in given.items()}
    if problem.dtype == "bfloat16":  # no product of 8-bit floats is too large for the output
        assert 0 < (exact["large"].abs() > torch.finfo(out).max).double().mean() < 0.1
    assert (given["denormal"]["a"][..., ::2].double().abs() < tiny).double().mean() > 0.99
    terms = torch.matmul(*(given["cancelling"][name].double().abs() for name in "ab"))
    assert exact["cancelling"].abs().median() < terms.median() / 30


def test_a_kernel_is_the_same_in_all_batches_or_not(script):
    batches = {m: script.problem_of("mm bfloat16", m, 48, 144) for m in (64, 1, 5, 33)}
    inputs = {data: script.operands(batches[64], data) for data in ("random", "large")}

    def run(of):
        return lambda m, given, out: out.copy_(of(given["a"], given["b"].T))

    good, bad = (script.compared(batches, inputs, run(of)) for of in (in_order, by_size))
    assert good["same"] == {"random": True, "large": True}
    assert bad["same"]["random"] is False
    assert good["digest"] == script.compared(batches, inputs, run(in_order))["digest"]
    assert good["digest"]["random"] != bad["digest"]["random"]


def test_rows_of_groups_keep_their_groups_in_all_batches(script):
    batches = {m: script.problem_of("grouped_mm_rows bfloat16", m, 48, 144) for m in (64, 5, 33)}
    whole = batches[64]
    inputs = {"random": script.operands(whole, "random")}

    def run(of):
        def call(m, given, out):
            begin = 0
            for group, end in enumerate(given["offsets"].tolist()):
                if end > begin:
                    out[begin:end] = of(given["a"][begin:end], given["b"][group].T)
                begin = end
            assert begin == m

        return call

    assert script.compared(batches, inputs, run(in_order))["same"] == {"random": True}
    assert script.compared(batches, inputs, run(by_size))["same"] == {"random": False}


def test_the_instructions_are_read_from_ptx(script):
    wgmma = "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16"
    assert script.instructions(f"{wgmma} {{%r1}};\n{wgmma}\nfma.rn.f32 a;") == [wgmma]
    assert script.instructions("fma.rn.f32 a;\nfma.rn.f32 b;") == ["fma.rn.f32"]


def test_each_task_that_is_not_done_runs_in_a_process(tmp_path, monkeypatch):
    import batch_invariance

    file = tmp_path / "rows.jsonl"
    done, other = "kernels mm bfloat16 0", "layer Llama 3 8B, o in TF32"
    file.write_text(json.dumps({"task": done, "done": True}) + "\n")
    monkeypatch.setattr(batch_invariance, "need_gpu", lambda: None)
    begun: list[tuple[str, list[str]]] = []

    def each_in_a_process(tasks, slots, take, **_):
        begun.extend(tasks)
        for name, _ in begun[:1]:
            take(name, {"error": "lost"})

    monkeypatch.setattr(batch_invariance, "each_in_a_process", each_in_a_process)
    command = ["batch_invariance.py", "--json", str(file)]
    for only in ([], ["--only", "TF32"]):
        monkeypatch.setattr(sys, "argv", [*command, *only])
        begun.clear()
        batch_invariance.main()
        names = [name for name, _ in begun]
        assert len(set(names)) == len(names)
        assert done not in names
        assert other in names
        assert ("serving" in names) is (not only)
        assert all(command[-2:] == ["--task", name] for name, command in begun)
    assert json.loads(file.read_text().splitlines()[-1]) == {"task": names[0], "error": "lost"}


def test_orders_whose_kernels_all_agree_are_proofs():
    import batch_invariance

    from diode_engine.choosing.proofs import Proof
    from diode_engine.choosing.summation import Instruction, SummationOrder

    order = SummationOrder(Instruction.MMA, "bfloat16", "float32", 16)
    row = {
        "kind": "mm bfloat16", "order": str(order), "fields": dataclasses.asdict(order),
        "size": [48, 144], "batches": [64, 1, 5], "same": {"random": True, "large": True},
        "digest": {"random": "x", "large": "y"}, "arch": "9.0", "torch": "2.11.0+cu130",
        "triton": "3.6.0",
    }  # fmt: skip
    rows = [{**row, "candidate": f"c{n}"} for n in range(3)]
    names = {"Proof": Proof, "SummationOrder": SummationOrder, "Instruction": Instruction}
    expected = Proof((order,), "9.0", ("2.11", "2.11"), ("3.6", "3.6"), 3, 128, "file")
    text = batch_invariance.proofs(rows)
    assert eval(text.rstrip(","), {**names, "SOURCE": "file"}) == expected  # noqa: S307
    assert not batch_invariance.proofs(rows[:1])  # compared with nothing
    for wrong in ({"same": {"random": True, "large": False}}, {"digest": {"random": "z"}}):
        assert not batch_invariance.proofs([*rows, {**rows[0], **wrong, "candidate": "c9"}])


def test_the_tables_count_kernels_pairs_and_batches():
    import batch_invariance

    kernel = {"kind": "mm bfloat16", "order": "wgmma", "size": [48, 144], "same": {"random": True}}
    us = {"invariant": 4.0, "diode": 2.0, "library": 2.5, "fixed": 8.0}
    layer = {"task": "layer a", "layer": "a", "N": 48, "K": 144, "dtype": "bfloat16"}
    assert batch_invariance.report([{"error": "The process ended"}]) == ""
    only_large = [{**layer, "M": 128, "us": us}]
    assert "up to" not in batch_invariance.report(only_large)
    text = batch_invariance.report([
        *({**kernel, "candidate": f"c{n}", "digest": {"random": d}} for n, d in enumerate("xxy")),
        {**layer, "way": "invariant", "pairs": 1000, "equal": 1000},
        {**layer, "way": "library", "pairs": 1000, "equal": 3},
        {**layer, "M": 16, "us": us}, {**layer, "M": 128, "us": {**us, "invariant": 1.0}},
        {**layer, "M": 16, "dtype": "float8 by row", "us": {"diode": 2.0, "library": 4.0}},
        {"program": "block", "options": "none", "batch": 1, "equal": False},
        {"program": "block", "options": "none", "batch": 8, "equal": True},
        {"task": "layer a", "done": True}, {"task": "b", "error": "lost"},
    ])  # fmt: skip
    assert "| wgmma | mm bfloat16 | 3 | 3 of 3 | 2 (1 ×) |" in text
    assert "| a (48×144) | 1,000 of 1,000 | 3 of 1,000 |" in text
    assert "| up to 64 | 0.500 | 1.000 | 0.800 | 0.250 |" in text
    assert "| all | 1.000 | 1.000 |" in text
    assert "| M, float8 by row | diode | library |\n|---|---|---|\n| 16 | 1.000 | 0.500 |" in text
    assert "| block | none | 8 | 1 |" in text


def test_a_prompt_has_one_completion_if_no_token_depends_on_the_batch(script, monkeypatch):
    import invariance_serving

    monkeypatch.setattr(invariance_serving, "NEW", 5)

    def step(tokens, keys, values):
        return (tokens[:, -1:] * 7 + tokens[:, :1]) % 100, keys, values

    def by_batch(tokens, keys, values):
        wrong = (tokens[:, -1:] > 50) & (len(tokens) > 4)
        return step(tokens, keys, values)[0] + wrong, keys, values

    prompts = torch.arange(60).view(20, 3) % 90
    row = invariance_serving.compare_completions(step, prompts, (2, 4, 20))
    assert row == {"prompts": 20, "batches": [2, 4, 20], "single": 20}
    assert invariance_serving.complete(step, prompts)[1].tolist() == [38, 4, 32, 56, 48]
    assert 0 < invariance_serving.compare_completions(by_batch, prompts, (2, 4, 20))["single"] < 20

"""On an NVIDIA GPU: the shipped model's kernels are compiled, and compute what eager computes."""

import numpy as np
import pytest
import torch

from tests.gpu.conftest import compiled, draw, error

pytestmark = pytest.mark.gpu

# relative error (Frobenius norm) of a product in that type
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-4}


OPS = {
    "mm": (torch.mm, lambda t: (draw(17, 4096, dtype=t), draw(4096, 4096, dtype=t).t())),
    "addmm": (
        torch.addmm,
        lambda t: (draw(3072, dtype=t), draw(256, 768, dtype=t), draw(768, 3072, dtype=t)),
    ),
    "bmm": (torch.bmm, lambda t: (draw(96, 197, 64, dtype=t), draw(96, 64, 197, dtype=t))),
    "baddbmm": (
        torch.baddbmm,
        lambda t: (
            draw(24, 128, 300, dtype=t),
            draw(24, 128, 64, dtype=t),
            draw(24, 64, 300, dtype=t),
        ),
    ),
}


def predicted_us(problem):
    """By candidate that fits, the time that the shipped model predicts; and the one that a compile
    should take."""
    from diode_engine.choosing.policy import Policy
    from diode_engine.core.hardware import detect
    from diode_engine.core.resources import fits
    from diode_engine.inductor.lowering import kernels
    from diode_engine.registry import load_predictor

    with kernels.graph_for(problem, torch.device("cuda", 0)) as operands:
        offered = list(kernels.offered(problem.op, operands, optional=False))
    fit = fits(problem, offered, detect())
    offered = [c for c, ok in zip(offered, fit, strict=True) if ok]
    prediction = load_predictor(detect()).predict(problem, offered)
    (index,), _ = Policy().compare(prediction).choose()
    us = prediction.predicted_us
    return {c: t for c, t in zip(offered, us, strict=True) if t == t}, offered[index]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("op", list(OPS))
def test_the_models_kernel_is_taken_and_right(op, dtype, diode):
    function, make = OPS[op]
    args = make(dtype)
    with diode.profile_predictions() as profile:
        result, counted, (code,) = compiled(function, *args)
    assert error(result, function(*args)) <= TOLERANCE[dtype]
    stats = diode.get_stats()
    assert stats["model_selections"] == 1
    assert stats["fallbacks"] == 0
    (choice,) = profile.selections
    (best,) = choice.candidates
    us, expected = predicted_us(choice.problem)
    assert best.is_extern == expected.is_extern
    # Inductor may list the candidates in several parts, of which each has a shortlist of its own.
    assert us[best] == pytest.approx(us[expected], rel=0.03)
    if best.is_extern:
        assert "extern_kernels" in code
        assert "triton_tem" not in code
    elif best.template == "decompose_k":
        assert "bmm" in code
    else:
        assert f"BLOCK_M : tl.constexpr = {best.config['BLOCK_M']}" in code
        assert f"BLOCK_N : tl.constexpr = {best.config['BLOCK_N']}" in code
        assert f"num_warps={best.config['num_warps']}" in code
    assert counted["select_algorithm_autotune"] == 0  # nothing was benchmarked


def test_a_net_forward_and_backward(diode):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768)
    ).to("cuda", torch.bfloat16)
    x = draw(300, 768, dtype=torch.bfloat16).requires_grad_()
    expected = net(x)
    grads = torch.autograd.grad(expected.square().sum(), [x, *net.parameters()])
    net.zero_grad()
    result, *_ = compiled(net, x)
    compiled_grads = torch.autograd.grad(result.square().sum(), [x, *net.parameters()])
    assert error(result, expected) <= 1e-2
    for ours, theirs in zip(compiled_grads, grads, strict=True):
        assert error(ours, theirs) <= 3e-2
    # two products forward; the gradients of both weights and of both inputs backward
    assert diode.get_stats()["model_selections"] >= 6
    assert diode.get_stats()["fallbacks"] == 0


def test_top_k_is_benchmarked_and_right(diode):
    assert diode.install_diode_choices(top_k_configs=4, performance_threshold=1.5)
    function, make = OPS["mm"]
    args = make(torch.bfloat16)
    result, *_ = compiled(function, *args)
    assert error(result, function(*args)) <= 1e-2
    assert diode.get_stats()["model_selections"] == 1


def test_a_collection_times_real_kernels(tmp_path):
    from diode_engine.collect.local import LocalExecutor
    from diode_engine.collect.planning.plan import CandidateSelection, Plan
    from diode_engine.collect.run import collect
    from diode_engine.core.hardware import detect
    from diode_engine.core.problem import Problem
    from diode_engine.store import Store

    problems = [
        Problem.make("addmm", 100, 300, 64, "float16"),
        Problem.make("mm", 64, 64, 8192, "bfloat16"),  # decompose_k's
    ]
    with Store.open(tmp_path / "s.db") as store:
        plan = Plan.for_problems(problems, CandidateSelection(24))
        progress = collect(store, plan, LocalExecutor([0], workers_per_gpu=2))
        table = store.read()
    assert progress.problems_done == 2
    timed = {table.candidates[c].template for c in table.candidate[table.failure == 0]}
    assert {"aten::addmm", "aten::mm", "triton::mm", "decompose_k"} <= timed
    assert np.nanmax(table.time_us) < 1e4
    state = progress.gpus[0].state
    assert state is not None  # NVML comes with the driver
    assert state.clock_mhz is not None
    assert 0 < state.clock_mhz <= detect().clock_mhz
    assert progress.gpus[0].timings == progress.timings

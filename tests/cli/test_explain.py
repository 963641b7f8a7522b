"""diode-engine explain, of the model that Diode ships."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import diode_engine
from diode_engine import paths, registry
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.invariant import InvariantChooser
from diode_engine.choosing.summation import order_of
from diode_engine.cli.explain import model_and_hardware
from diode_engine.cli.models import looking
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.models.artifact import load_artifact, save_artifact
from diode_engine.models.predictor import Predictor
from diode_engine.problems.predicted_choice import choose_offered
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.store import write_dataset
from tests.cli.conftest import make_timings


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch, tmp_path):
    """Whatever this machine has: what is taken here is asked of torch."""
    monkeypatch.setattr(looking, "_NVIDIA", tmp_path / "none")


def test_the_ranking_is_the_models_among_what_fits(run):
    asked = "explain mm 64 4096 4096 --layouts row/col --top 7 --json --hardware"
    ran = run(*asked.split(), "NVIDIA H200")
    assert (ran.code, ran.err) == (0, "")
    found = ran.json()
    problem = Problem.make("mm", 64, 4096, 4096, "bfloat16", b_layout="col")
    assert Problem.from_dict(found["problem"]) == problem
    match = registry.best_for(H200)
    assert found["model"] == match.model.reference
    space = exhaustive_space(problem)
    launchable = [c for c, ok in zip(space, fits(problem, space, H200), strict=True) if ok]
    assert (found["candidates"], found["launchable"]) == (len(space), len(launchable))
    us = Predictor.load(match.model.folder).predict_us(problem, launchable)
    assert [row["predicted_us"] for row in found["ranked"]] == pytest.approx(np.sort(us)[:7])
    assert [row["rank"] for row in found["ranked"]] == list(range(1, 8))


def test_the_first_is_compared_with_the_best_of_the_other_kind(run):
    found = run("explain", "mm", "64", "4096", "4096", "--hardware", "NVIDIA H200", "--json").json()
    first, compared = found["ranked"][0], found["compared"]
    other = compared["with"]
    kinds = {row["template"].startswith("aten") for row in (first, other)}
    assert kinds == {True, False}
    ratio = first["predicted_us"] / other["predicted_us"]
    assert math.prod(compared["factors"].values()) == pytest.approx(ratio, rel=1e-3)
    assert len(compared["resources"]) == 2
    assert found["roofline"]["time_us"] < first["predicted_us"]


def test_the_same_in_words(run):
    asked = "explain addmm 8 4096 4096 --dtype tf32 --top 1 --hardware"
    ran = run(*asked.split(), "NVIDIA H200")
    assert ran.code == 0
    for words in ("memory-bound", "can be launched", "kind of kernel", "Shapley", "shared memory"):
        assert words in ran.out
    assert "e+0" not in ran.out
    asked = ["explain", "mm", *["64"] * 3, "--model", "gemm", "--hardware", "A100-SXM4-40GB"]
    found = run(*asked, "--json").json()
    assert found["reached"] < 0.9  # for a GPU that the model does not know
    says = f"the best of the first {found['to_time']} with {found['reached']:.2f}."
    assert says in run(*asked).out


def test_the_batch_invariant_kernel_and_what_it_costs(run):
    device = "NVIDIA H100 80GB HBM3"

    def explain(*more):
        sizes = ("8", "4096", "4096", "--layouts", "row/col")
        return run("explain", "mm", *sizes, "--torch", "2.11", "--hardware", device, *more).out

    found = json.loads(explain("--batch-invariant", "--json"))
    invariant = found.pop("batch_invariant")
    assert found == json.loads(explain("--json"))
    model, h100 = model_and_hardware(None, device)
    chooser = Chooser(Predictor.load(model.folder, h100), h100)
    problem = Problem.make("mm", 8, 4096, 4096, "bfloat16", b_layout="col")
    order = order_of(problem, Candidate.from_dict(invariant["taken"]), h100)
    assert order in InvariantChooser(chooser, "2.11", "3.6").orders_for(problem)
    assert invariant["order"] == str(order)
    _, choice = choose_offered(problem, chooser, "2.11")
    assert invariant["behind"] == invariant["predicted_us"] / choice.predicted_us[0] - 1
    words = explain("--batch-invariant")
    assert f"It adds up by {order}." in words
    assert f"{invariant['behind']:+.1%}" in words


@pytest.mark.parametrize("tokens", ["2", "512"])
def test_the_batch_invariant_kernel_of_experts(run, tokens):
    sizes = ("grouped_mm_rows", tokens, "1536", "2048", "--batch", "128", "--torch", "2.11")
    ran = run("explain", *sizes, "--batch-invariant", "--hardware", "NVIDIA H100 80GB HBM3")
    assert re.search(r"adds up by (mma.sync|wgmma) bfloat16 k16 float32 in groups\.", ran.out)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("mm 8 512 512 --torch 2.10", "proven on NVIDIA H200 with torch 2.10 and Triton 0.0"),
        ("mm 8 1 512 --torch 2.11", "a product of one column"),
    ],
)
def test_why_no_kernel_is_batch_invariant(run, asked, why):
    ran = run("explain", *asked.split(), "--batch-invariant", "--hardware", "NVIDIA H200")
    assert ran.code == 0
    assert "With diode_batch_invariant it takes the library's kernel: no kernel is known" in ran.out
    assert why in ran.out


def test_what_the_model_cannot_say_is_exit_code_3(run, model):
    sizes = ["64"] * 3
    run("explain", "bmm", *sizes, "--batch", "4", "--model", model).says(3, "has no prediction")


def test_a_wrong_question(run):
    assert run("explain", "mm", "0", "64", "64").code == 2
    assert run("explain", "conv", "1", "64", "64").code == 2
    for version in ("new", "1.0"):
        ran = run("explain", "mm", "1", "64", "64", "--torch", version)
        ran.says(2, f"such as 2.11, not '{version}'")
    for words in (("--batch-invariant",), ("--dtype", "fp16"), ("--with", "x=y"), ("--top", "2")):
        run("explain", "--file", __file__, *words).says(2, f"{words[0]} is for one product")
    ran = run("explain", "int_mm", "64", "64", "64", "--hardware", "NVIDIA H200")
    assert ran.out.startswith("int_mm 64×64×64 int8")
    run("explain", "mm", "1", "64", "64", "--hardware", "A100").says(3, "none, or several")
    biased = run("explain", "mm", "64", "64", "64", "--bias", "vector", "--hardware", "NVIDIA H200")
    assert (biased.code, biased.out) == (2, "")
    assert run("explain", "mm", "64", "64", "64", "--hardware", "GTX 1080").code == 3


def test_without_a_gpu_it_asks_which_one_and_takes_the_answer(run):
    asked = ("explain", "mm", "64", "64", "64")
    run(*asked).says(3, '--hardware "NVIDIA H200"', "NVIDIA H100 80GB HBM3")
    # Models of one name for several GPUs: the one for the GPU that is named.
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        found = run(*asked, "--model", "default", "--hardware", name, "--json")
        assert found.code == 0, found.err
        own = registry.resolve("default", name)
        line = found.json()
        assert (line["model"], line["hardware"]) == (own.reference, name)
        assert found.err == ""  # none about another GPU's model


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_a_name_of_models_for_several_gpus_is_the_one_for_the_timings(run, tmp_path, name):
    """With the models that Diode ships: each GPU has a default."""
    own = registry.resolve("default", name).reference
    file = tmp_path / "timings.json"
    write_dataset(make_timings(4, name=name), file)
    judged = run("validate", "--dataset", file, "--model", "default", "--all")
    assert judged.code == 0, judged.err
    assert f"{own}: 4 problems" in judged.out
    predicted = run("predict", file, "--model", "default")
    assert predicted.code == 0, predicted.err
    assert {json.loads(line)["model"] for line in predicted.out.splitlines()} == {own}


@pytest.mark.usefixtures("nothing_shipped")
def test_without_any_model(run):
    run("explain", "mm", "64", "64", "64").says(3, "There is no model")


def test_an_op_that_the_model_does_not_know(run, tmp_path):
    shipped = load_artifact(paths.shipped_dir() / "trained_models/nvidia-h200/gemm/17")
    coverage = replace(shipped.manifest.coverage, op_types=("mm bfloat16",))
    manifest = replace(shipped.manifest, name="only-mm", coverage=coverage)
    save_artifact(tmp_path / "only-mm", manifest, shipped.members)
    asked = ("explain", "scaled_mm", "64", "128", "256", "--dtype", "e4m3", "--hardware",
             "NVIDIA H200", "--with")  # fmt: skip
    only_mm = ("--with", "fast_accum=true", "--model", tmp_path / "only-mm")
    for words, says in (
        (("scaling=row", *only_mm), "has no prediction for scaled_mm"),
        (("scaling=row", *only_mm), "fast_accum=True scaling=row"),
        (("speed=9",), "it has: scaling, fast_accum, b_dtype"),
        (("scaling=odd",), "must be one of 'tensor', 'row'"),
    ):
        ran = run(*asked, *words)
        assert (ran.code != 0, says in ran.err) == (True, True), ran


def test_a_captured_program_is_listed(run, shapeset):
    problems = [
        Problem.make("addmm", 16, 4096, 4096, "bfloat16", b_layout="col"),
        Problem.make("mm", 512, 512, 512, "float16"),
        Problem.make("mm", 64, 64, 64, "float64"),
    ]
    asked = ("explain", "--file", shapeset(*problems), "--hardware", "NVIDIA H200")
    lines = run(*asked, "--json").json()
    assert [line["problem"] for line in lines] == [p.to_dict() for p in problems]
    asked_one = (
        ("addmm", 16, 4096, 4096, "--layouts=row/col"), ("mm", 512, 512, 512, "--dtype=fp16"),
    )  # fmt: skip
    for line, words in zip(lines, asked_one, strict=False):
        one = run("explain", *words, "--hardware", "NVIDIA H200", "--json")
        assert line["taken"] == one.json()["taken"]
        assert 0 < line["predicted_us"] <= line["library_us"]
    assert lines[2]["taken"] is None
    shown = run(*asked).out.splitlines()
    assert len(shown) == 3 + len(problems)
    assert "the library's" in shown[-1]
    choice = diode_engine.predict_choice(problems[0], "NVIDIA-H200-matmul")
    assert {**choice.candidates[0].to_dict(), "why": str(choice.why)} == lines[0]["taken"]
    assert choice.library_us == lines[0]["library_us"]


def test_a_problem_or_a_file_is_explained(run, shapeset):
    of_file, whole = ("--file", shapeset()), ("mm", "64", "64", "64")
    for words in ((), whole[:3], (*whole, *of_file)):
        run("explain", *words).says(2, "Give OP, M, N and K, or --file FILE.")
    assert run("explain", *of_file, "--hardware", "NVIDIA H200").code == 3

"""Frozen choices: what a program's compiles chose is written, and taken without a model."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine import registry
from diode_engine.choosing import frozen, frozen_file
from diode_engine.choosing.choice import Why
from diode_engine.core.hardware import H200
from diode_engine.errors import FrozenChoicesError
from diode_engine.inductor.choosing.search import find_alteration
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.inductor.without_gpu import lower
from diode_engine.registry import load_predictor
from tests.inductor_nogpu.conftest import (
    ASKS_BEFORE_PADDING,
    FAST,
    MMA,
    OPS,
    SPEECHLESS,
    WGMMA,
    Build,
    FixedPredictor,
    build_of,
    empty,
    gemm,
    marked,
    perceptron,
    programs,
    reopen_decision,
    state_in_keys,
)
from tests.inductor_nogpu.test_capture import PROGRAM
from tests.inductor_nogpu.test_convolutions import convolution
from tests.inductor_nogpu.test_grouped import experts
from tests.inductor_nogpu.test_guard import sums
from tests.inductor_nogpu.test_options import float32_gemm, pads, times_of_padding

INVARIANT = {"options": {"diode_batch_invariant": True}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "frozen.toml"


def freeze(path: Path, *builds: Build, predictor: Any = None, **how: Any) -> list[list[str]]:
    """Lower by a model, and freeze what it chose; return the programs."""
    diode_engine.install_diode_choices(predictor=predictor or FixedPredictor(), top_k_configs=1)
    with diode_engine.report() as program:
        sources = [programs(build, **how) for build in builds]
        program.freeze(path)
    diode_engine.uninstall_diode_choices()
    return sources


def frozen_to(path: Path, *builds: Build, monkeypatch: Any, **how: Any) -> list[list[str]]:
    """Lower by frozen choices, where no model can be loaded; return the programs."""

    def no_model(*_: Any, **__: Any) -> None:
        raise AssertionError("a model is loaded")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "load_predictor", no_model)
        patch.setattr("diode_engine.models.predictor.Predictor.load", no_model)
        patch.setattr("diode_engine.inductor.choosing.flex_attention.table_for", no_model)
        reopen_decision()
        how["options"] = {**how.get("options", {}), "diode_frozen_choices": str(path)}
        return [programs(build, **how) for build in builds]


def layer(rows: int) -> Build:
    return build_of(torch.mm, (rows, 1024), (1024, 768))


def block(width: int = 1024) -> Build:
    """A program with an epilogue behind one of two equal products."""
    return lambda: (perceptron(width, width, width, bias=False), [empty(128, width)])


@pytest.mark.parametrize("how", [{}, FAST])
def test_a_compile_takes_the_frozen_kernels_without_a_model(how, path, monkeypatch):
    builds = [*OPS.values(), block(), experts(), sums]
    by_model = freeze(path, *builds, **how)
    with diode_engine.profile_predictions() as profile:
        assert frozen_to(path, *builds, monkeypatch=monkeypatch, **how) == by_model
    assert {choice.why for choice in profile.selections} == {Why.FROZEN}
    assert diode_engine.get_stats()["model"] == ""
    # and from memory
    with diode_engine.profile_predictions() as profile:
        assert frozen_to(path, block(), monkeypatch=monkeypatch, **how) == [by_model[4]]


def test_the_file_is_sorted_and_read_as_it_was_written(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    freeze(first, OPS["mm"], block(), OPS["bmm"])
    freeze(second, block(), OPS["bmm"], OPS["mm"], OPS["mm"])
    text = first.read_text()
    assert text == second.read_text()
    read = frozen_file.read(first)
    assert frozen_file.render(read) == text
    assert read.describe_differences(frozen_file.read(second)) == []
    second.write_text(text.replace("BLOCK_N = 256", "BLOCK_N = 64", 1))
    (said,) = read.describe_differences(frozen_file.read(second))
    assert re.search("^addmm .* BLOCK_N = 256,.* in the file, .* BLOCK_N = 64,.* now.$", said)
    assert "\n# mm 512×768×1024 bfloat16 row16/row16: triton::mm 128×256×64 s3 w8\n" in text
    assert 'problem = { op = "mm", M = 512, N = 768, K = 1024, dtype = "bfloat16" }\n' in text
    assert 'why = "predicted to be the fastest"\npredicted_us = 1.0\nlibrary_us = 5.0\n' in text
    assert re.search('epilogue = "writes 1, reads 1, instructions 0, operands 0"', text)


def test_the_librarys_kernel_is_frozen_too(path, monkeypatch):
    builds = OPS.values()
    by_model = freeze(path, *builds, predictor=FixedPredictor(aten=0.5))
    assert all("extern_kernels" in source for (source,) in by_model)
    assert frozen_to(path, *builds, monkeypatch=monkeypatch) == by_model


@pytest.mark.parametrize("bias", [((512, 1), (2, 1)), ((1, 768), (768, 0))], ids=str)
@pytest.mark.parametrize("aten", [0.5, 5.0])
def test_a_product_that_is_asked_for_with_two_biases_is_found(bias, aten, path, monkeypatch):
    """From torch 2.13 on Triton's kernels may get such a bias written out as a matrix."""

    def build():
        strided = torch.empty_strided(*bias, dtype=torch.bfloat16, device="cuda")
        return torch.addmm, (strided, empty(512, 1024), empty(1024, 768))

    by_model = freeze(path, build, predictor=FixedPredictor(aten=aten))
    assert frozen_to(path, build, monkeypatch=monkeypatch) == by_model


def refusal(path: Path, build: Build, monkeypatch: Any, **how: Any) -> str:
    with pytest.raises(Exception, match="frozen choices") as raised:
        frozen_to(path, build, monkeypatch=monkeypatch, **how)
    text = str(raised.value)
    assert "Traceback" not in text
    assert f"diode-engine freeze -o {path}" in text
    return text


def test_a_product_that_is_missing_is_refused(path, monkeypatch):
    freeze(path, gemm)
    for op in ("addmm", "bmm"):
        assert f"it has no choice for {op} " in refusal(path, OPS[op], monkeypatch)
    with_epilogue = build_of(lambda a, b: torch.relu(a @ b), (512, 1024), (1024, 768))
    assert "with an epilogue (writes 1" in refusal(path, with_epilogue, monkeypatch)
    assert "it has no choice for bmm " in refusal(path, OPS["bmm"], monkeypatch, **FAST)


def test_a_kernel_that_inductor_does_not_offer_is_refused(path, monkeypatch):
    freeze(path, gemm, OPS["addmm"])
    path.write_text(path.read_text().replace("BLOCK_N = 256", "BLOCK_N = 96"))
    for build in (gemm, OPS["addmm"]):
        text = refusal(path, build, monkeypatch)
        assert "Inductor does not offer triton::mm 128×96×64 s3 w8 for" in text
    alone = {"options": {"max_autotune_gemm_backends": "TRITON"}}
    assert "Inductor does not offer" in refusal(path, gemm, monkeypatch, **alone)
    path.write_text(path.read_text().replace('"triton::mm"', '"triton::other"'))
    for build in (gemm, OPS["addmm"]):
        assert "Inductor does not offer triton::other" in refusal(path, build, monkeypatch)


@pytest.mark.parametrize(
    ("made", "other", "said"),
    [
        ('gpu = "NVIDIA H200"', 'gpu = "NVIDIA H100"', "made for NVIDIA H100, and this is NVIDIA"),
        ("\ntorch = ", '\ntorch = "2.9"\nwas = ', "made for torch 2.9, and this is torch 2."),
        ("\ntriton = ", '\ntriton = "9"\nwas = ', "made for triton 9, and this is triton "),
    ],
)
def test_a_file_for_something_else_is_refused(made, other, said, path, monkeypatch):
    freeze(path, gemm)
    assert made in path.read_text()
    path.write_text(path.read_text().replace(made, other))
    assert said in refusal(path, gemm, monkeypatch)


@pytest.mark.parametrize("text", [None, "[", 'format = "diode-frozen-choices"', "version = 1"])
def test_a_file_that_cannot_be_read_is_refused(text, path, monkeypatch):
    if text is not None:
        path.write_text(text)
    with pytest.raises(Exception, match="frozen choices") as raised:
        frozen_to(path, gemm, monkeypatch=monkeypatch)
    assert str(path) in str(raised.value)


def test_a_failure_in_a_frozen_compile_ends_it(path, monkeypatch):
    freeze(path, gemm)
    monkeypatch.setattr(frozen.FrozenChoices, "find", lambda *_: 1 / 0)
    with pytest.raises(Exception, match="division"):
        frozen_to(path, gemm, monkeypatch=monkeypatch)


def test_a_dynamic_product_is_found_whatever_its_first_size(path, monkeypatch):
    def rows(m):
        return lambda: (torch.mm, (marked(empty(m, 1024), 0, min=2, max=4096), empty(1024, 768)))

    freeze(path, rows(640), rows(512))
    text = path.read_text()
    assert text.count("[[product]]") == 1
    assert 'dynamic = "M 2 to 4096"' in text
    assert "M = 512" in text
    (again,), (other,) = frozen_to(path, rows(512), rows(1000), monkeypatch=monkeypatch)
    assert again.count("BLOCK_N : tl.constexpr = 256") == 1
    assert other.count("BLOCK_N : tl.constexpr = 256") == 1
    assert "no choice for mm 512×768×1024" in refusal(path, gemm, monkeypatch)  # a static one


@pytest.mark.parametrize("first", [512, 77])
def test_a_dynamic_product_is_found_whatever_the_length_of_its_rows(first, path, monkeypatch):
    def inner(k):
        bounds = {"min": 2, "max": 4096}
        sizes = ((256, k), 1), ((k, 512), 0)
        return lambda: (torch.mm, [marked(empty(*size), dim, **bounds) for size, dim in sizes])

    freeze(path, inner(first), inner(640))
    text = path.read_text()
    assert text.count("[[product]]") == 1
    frozen_to(path, inner(77), inner(512), inner(40), monkeypatch=monkeypatch)
    # As an earlier Diode wrote it.
    again = text.partition("\n# mm")[2].replace(f"K = {first}", "K = 78")
    path.write_text(f"{text}\n# mm{again}")
    frozen_to(path, inner(77), monkeypatch=monkeypatch)
    path.write_text(f"{text}\n# mm{again}".replace("aten::mm", "aten::other", 2))
    with pytest.raises(FrozenChoicesError, match="It has two choices for one product"):
        frozen_file.read(path)


def test_a_product_without_a_choice_stays_without(path, monkeypatch):
    by_model = freeze(path, gemm, predictor=SPEECHLESS)
    assert 'kernel = "plain"\nwhy = "the model has no prediction for mm' in path.read_text()
    searching = {"diode_fallback_to_autotune": True}
    assert frozen_to(path, gemm, monkeypatch=monkeypatch, options=searching) == by_model
    integers = build_of(torch.mm, (64, 64), (64, 64), dtype=torch.int16)
    (source,) = frozen_to(path, integers, monkeypatch=monkeypatch)[0]
    assert "extern_kernels.mm" in source


def test_a_changed_search_does_not_matter_to_frozen_choices():
    """Nor to those before a product is lowered: to pad it, or to make one op of a sum."""
    with config.patch({"test_configs.max_mm_configs": 3}):
        assert "max_mm_configs is set" in str(find_alteration())
        with config.patch(diode_frozen_choices="frozen.toml"):
            assert find_alteration() is None


def test_several_kernels_are_not_frozen(tmp_path):
    diode_engine.install_diode_choices(predictor=FixedPredictor(aten=1.05), top_k_configs=2)
    with diode_engine.report() as program:
        lower(gemm, benchmark=lambda _: 1.0)
        with pytest.raises(FrozenChoicesError, match="has timed 2 kernels for mm 512"):
            program.freeze(tmp_path / "frozen.toml")
    assert not (tmp_path / "frozen.toml").exists()


def test_while_freezing_each_product_gets_one_kernel_and_nothing_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv(frozen.FREEZING, "1")
    diode_engine.install_diode_choices(predictor=FixedPredictor(aten=1.05), top_k_configs=2)
    options = {"diode_frozen_choices": str(tmp_path / "none.toml"), "diode_top_k": 3}
    assert len(lower(gemm, options=options).seen[0].candidates) == 1


def test_what_is_decided_before_lowering_is_frozen(path, monkeypatch):
    builds = [convolution(torch.bfloat16), sums]
    for predictor in (FixedPredictor(), FixedPredictor(aten=0.5), FixedPredictor(aten=1000.0)):
        by_model = freeze(path, *builds, predictor=predictor)
        assert frozen_to(path, *builds, monkeypatch=monkeypatch) == by_model
    assert 'what = "keep the convolution"' in path.read_text()
    assert 'what = "make one op of the sum"' in path.read_text()
    path.write_text(path.read_text().partition("\n# addmm")[0].partition("[[decision]]")[0])
    assert "whether to keep the convolution" in refusal(path, builds[0], monkeypatch)


def float32_rows(m: int) -> Build:
    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        a, b = (empty(*size, dtype=torch.float32) for size in ((m, 2049), (2049, 2048)))
        return torch.mm, (marked(a, 0, min=2, max=8192), b)

    return build


ROWS = [float32_rows(m) for m in (2048, 1000, 16)]


@ASKS_BEFORE_PADDING
@pytest.mark.parametrize("padded", [333.0, 960.0])
@pytest.mark.parametrize("builds", [[float32_gemm], ROWS, ROWS[::-1]], ids=["static", "2048", "16"])
def test_padding_is_frozen(builds, padded, path, monkeypatch):
    times = times_of_padding((1000.0, padded))
    with diode_engine.report() as program, monkeypatch.context() as patch:
        assert pads(times, builds[0], patch) == (padded < 900)
        program.freeze(path)
    options = {"shape_padding": True, "diode_frozen_choices": str(path)}
    other = times_of_padding((1000.0, 1000.0))
    for build in builds:  # a dynamic number of rows is decided once
        with monkeypatch.context() as patch:
            assert pads(other, build, patch, options=options) == (padded < 900)
    assert builds == ROWS or other.asked == []


def test_the_file_decides_where_the_option_is_set_and_else_the_model(path):
    """Not what would be chosen: a reviewer may edit the file."""
    freeze(path, gemm)
    path.write_text(path.read_text().replace("BLOCK_N = 256", "BLOCK_N = 128"))
    diode_engine.install_diode_choices(predictor=FixedPredictor(), top_k_configs=1)
    hashes = []
    for options, expected in (({}, 256), ({"diode_frozen_choices": str(path)}, 128)) * 2:
        with diode_engine.profile_predictions() as profile:
            lower(gemm, options=options)
        (choice,) = profile.selections
        assert choice.candidates[0].config["BLOCK_N"] == expected
        assert (choice.predicted_us, choice.library_us) == ((1.0,), 5.0)
        with config.patch(options):
            hashes.append((state_in_keys(), read_fingerprint().key))
    assert hashes[:2] == hashes[2:]
    assert len(set(hashes)) == 2
    with config.patch(diode_frozen_choices=str(path)):
        assert read_fingerprint().parts["frozen"] == frozen_file.read(path).key
        assert "model" not in read_fingerprint().parts
        path.write_text(path.read_text() + "# changed\n")
        assert {state_in_keys(), read_fingerprint().key}.isdisjoint(chain(*hashes))


def test_without_a_model_it_works_and_says_so_without_the_file(path, monkeypatch, caplog):
    freeze(path, gemm)
    monkeypatch.setattr(registry, "load_predictor", lambda *_, **__: None)
    reopen_decision()
    assert lower(gemm, options={"diode_frozen_choices": str(path)}).seen
    assert "extern_kernels.mm" in lower(gemm).sources[0]
    assert "there is no model for NVIDIA H200" in caplog.text
    assert diode_engine.get_stats()["model"] == ""
    assert read_fingerprint().parts["model"] == "none"


# As PROGRAM, but it ends well, and leaves what it has noted beside the file.
LEAVES_NOTES = PROGRAM.replace(
    "sys.exit(7)",
    "import os, pathlib, shutil\n"
    "(notes,) = pathlib.Path(os.environ['DIODE_REPORT']).glob('*.jsonl')\n"
    "shutil.copy(notes, os.environ['DIODE_FROZEN_CHOICES'] + '.notes')",
)
# Notes the same again, of a product of another size, without the seconds that compiling takes.
NOTES_AGAIN = """
import os, pathlib, sys
notes = pathlib.Path(os.environ["DIODE_FROZEN_CHOICES"] + ".notes").read_text()
notes = notes.replace('"N": 128', f'"N": {sys.argv[1]}')
(pathlib.Path(os.environ["DIODE_REPORT"]) / "again.jsonl").write_text(notes)
sys.exit(int(sys.argv[2]))
"""


def test_the_command_writes_and_checks_the_file(path, monkeypatch, capfd):
    pytest.importorskip("click", reason="the command needs diode-engine[store]")
    from diode_engine.cli import main

    monkeypatch.setenv("DIODE_FROZEN_CHOICES", str(path))

    def run(*words, program=NOTES_AGAIN, n=128, exits=0):
        command = [sys.executable, "-c", program, str(n), str(exits)]
        code = main(["freeze", "-o", str(path), *words, "--", *command])
        out, err = capfd.readouterr()
        return code, out, " ".join(err.split())

    code, out, err = run("--check")
    assert (code, out) == (1, "")
    assert f"{path} cannot be read: No such file" in err
    code, out, err = run(program=LEAVES_NOTES)
    assert (code, out) == (0, f"{path}: 1 products, for NVIDIA H200.\n")
    assert "its own output" in err
    text = path.read_text()
    assert "mm 64×128×96 float16" in text
    assert run("--check")[0] == 0
    code, out, _ = run("--check", n=136)
    assert code == 1
    assert "mm 64×136×96 float16" in out
    assert "no longer in the program" in out
    assert path.read_text() == text
    code, _, err = run(exits=1)
    assert code == 1
    assert "Nothing was written" in err
    assert path.read_text() == text


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", "default"])
def test_kernels_that_do_not_depend_on_the_batch_are_frozen(mode, path, monkeypatch):
    invariant = {"mode": mode, **INVARIANT}
    builds = [OPS["mm"], OPS["addmm"]]
    by_model = freeze(path, *builds, **invariant)
    assert path.read_text().count("batch_invariant = true") == 2
    assert frozen_to(path, *builds, monkeypatch=monkeypatch, **invariant) == by_model
    assert "it has no choice for mm " in refusal(path, gemm, monkeypatch)  # that may depend on it
    freeze(path, gemm)
    assert "row16, batch-invariant. To make" in refusal(path, gemm, monkeypatch, **invariant)


def rows_that_change() -> tuple[Any, Sequence[torch.Tensor]]:
    return torch.mm, (marked(empty(300, 1024), 0), empty(1024, 768))


def test_the_kernels_of_a_dynamic_number_of_rows_are_frozen(path, prove, monkeypatch):
    prove([WGMMA, MMA])
    by_model = freeze(path, rows_that_change, predictor=load_predictor(H200), **INVARIANT)
    text = path.read_text()
    assert "version = 2\n" in text
    assert text.count("most_rows = ") + 1 == text.count("kernel = ") > 1
    read = frozen_file.read(path)
    assert frozen_file.render(read) == text
    with diode_engine.profile_predictions() as profile:
        taken = frozen_to(path, rows_that_change, monkeypatch=monkeypatch, **INVARIANT)
    assert taken == by_model
    (choice,) = profile.selections
    assert choice.by_rows == read.choices[0].by_rows
    assert choice.why == Why.FROZEN

    path.write_text(text.replace("most_rows = ", "most_rows = 1", 1))
    (said,) = read.describe_differences(frozen_file.read(path))
    assert re.search(r"rows; .* in the file, .* rows; .* now\.$", said)
    path.write_text(text.replace('"triton::mm"', '"triton::mm_persistent_tma"', 1))
    says = "an order that is not known"
    assert says in refusal(path, rows_that_change, monkeypatch, **INVARIANT)
    path.write_text(re.sub(r"most_rows = \d+", "most_rows = 9000", text))
    with pytest.raises(FrozenChoicesError, match="most_rows must grow"):
        frozen_file.read(path)
    path.write_text(text)
    monkeypatch.setattr("diode_engine.inductor.choosing.one_order.can_generate", lambda: False)
    says = "cannot take one of several kernels"
    assert says in refusal(path, rows_that_change, monkeypatch, **INVARIANT)


def test_an_edited_kernel_must_give_the_bits_of_its_layer(path, prove, monkeypatch):
    builds = [layer(16), layer(256)]
    prove((WGMMA, MMA))
    by_model = freeze(path, *builds, **INVARIANT)
    assert all("tl.dot" in source for sources in by_model for source in sources)
    assert frozen_to(path, *builds, monkeypatch=monkeypatch, **INVARIANT) == by_model
    few, many = path.read_text().split("# mm 256×")
    edited = [re.sub(r"BLOCK_M = \d+", f"BLOCK_M = {m}", part) for m, part in
              ((16, few), (64, re.sub(r"num_warps = \d+", "num_warps = 4", many)))]  # fmt: skip
    path.write_text("# mm 256×".join(edited))
    prove((WGMMA,), (MMA,))
    says = "which add up in orders that do not give the same bits"
    assert says in refusal(path, builds[0], monkeypatch, **INVARIANT)
    prove((WGMMA,))
    says = "mma.sync bfloat16 k16 float32, which is not proven on NVIDIA H200 with torch"
    assert says in refusal(path, builds[0], monkeypatch, **INVARIANT)
    path.write_text(path.read_text().replace("triton::mm", "triton::mm_persistent_tma"))
    assert "an order that is not known" in refusal(path, builds[1], monkeypatch, **INVARIANT)

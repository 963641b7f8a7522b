"""Programs: the list, and the page of one; over the report of a real lowering, captured products,
and feedback in the store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diode_app.data.choice import why
from diode_app.data.programs import (
    CAPTURED,
    FEEDBACK,
    REPORT,
    Source,
    ask_models,
    list_programs,
    parse_products,
    product_columns,
    product_rows,
    read_program,
    view_products,
)
from diode_app.links import link, link_to
from diode_app.screens.ask import AskScreen
from diode_app.screens.candidate import CandidateScreen
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.program import ProgramScreen, summary
from diode_app.screens.ranking import Ranking
from diode_app.screens.run import RunScreen
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.problems.predicted_choice import predict_choice
from diode_engine.problems.sources import problems_in, write_shapeset
from diode_engine.reports import record
from tests.app.waiting import click_on, enter, looked, press, running, text_of
from tests.training.conftest import ENVIRONMENT

REPORTED = Path(__file__).parents[1] / "reports" / "program.json"
# The second one gains most.
PRODUCTS = tuple(
    Problem.make("addmm", 16, n, 4096, "bfloat16", b_layout="col") for n in (11008, 4097, 2049)
)


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """An empty folder of work; the models are those that come with Diode."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def captured():
    path = Path.cwd() / "captured.json"
    write_shapeset(PRODUCTS, path, "captured from: python program.py")
    return path


@pytest.fixture
def reported():
    return record.write(record.read(REPORTED))


@pytest.fixture
def fed(store):
    """A run of a process that benchmarks with DIODE_FEEDBACK."""
    run = store.start_run("feedback", {"program": ["serve.py"]})
    _add_timing(store, run, PRODUCTS[1])
    return run


def _add_timing(store, run, problem):
    record = (problem, Candidate.make("aten::bias_addmm"), ENVIRONMENT, Timing(min_us=20.0))
    store.add(run, TimingTable.from_records([record]))


def _program(path: Path):
    return read_program(Source(path), H200)


# What is known


def test_the_list_has_reports_captured_products_and_feedback(store, reported, captured, fed):
    (captured.parent / "settings.json").write_text("{}")
    rows = {row.record["kind"]: row for row in list_programs(store, H200)}
    assert set(rows) == {REPORT, CAPTURED, FEEDBACK}
    report = record.read(reported)
    assert rows[REPORT].record["saved_us"] == report.saved_us
    whole = report.predicted_us + report.saved_us
    assert rows[REPORT].record["share"] == report.saved_us / whole
    assert rows[REPORT].record["products"] == sum(p.count for p in report.products)
    assert rows[CAPTURED].record["products"] == 3
    assert rows[FEEDBACK].record["program"] == f"run {fed}: serve.py"
    for kind, row in rows.items():
        source = Source.named(row.key)
        assert read_program(source, H200, store).kind == kind
        assert str(source) == row.key


def test_a_report_that_cannot_be_read_is_listed_with_the_reason(store, reported):
    reported.write_text('{"format": "diode-report", "version": 99}')
    (row,) = list_programs(store, H200)
    assert "is of version 99" in row.record["program"]


def test_what_a_compile_has_chosen_stays_and_what_it_has_not_asked_is_predicted(reported, captured):
    report = record.read(reported)
    other = replace(report.products[0], kernel=Candidate.make("aten::mm"), predicted_us=1.0)
    record.write(replace(report, products=(other, *report.products[1:])), reported)
    program = _program(reported)
    assert (program.model.reference, program.model.hardware) == ("gemm@17", H200)
    answers = ask_models(program.problems, program, None)
    views = view_products(program, answers, None)
    for view, product in zip(views, program.report.products, strict=True):
        assert view.product == product
        assert view.saved_us == product.saved_us
    assert views[0].product == other

    program = _program(captured)
    before = view_products(program, {}, None)
    assert not any(view.is_asked or view.saved_us for view in before)
    answers = ask_models(program.problems, program, None)
    for view in view_products(program, answers, None):
        said = predict_choice(view.product.problem, "NVIDIA-H200-matmul")
        assert view.product.kernel == said.candidates[0]
        assert view.product.predicted_us == pytest.approx(said.predicted_us[0])
        assert view.product.library_us == pytest.approx(said.library_us)
        assert view.product.why == said.why
        assert view.default_us == pytest.approx(answers[view.product.problem].default_us)


def test_a_product_that_no_model_knows_is_left_with_a_reason(captured):
    unknown = Problem.make("mm", 64, 64, 64, "float64")
    write_shapeset([unknown], captured, "x")
    program = _program(captured)
    (view,) = view_products(program, ask_models([unknown], program, None), None)
    assert (view.kernel, view.product.outcome) == ("", record.Outcome.LEFT)
    columns = product_columns("")
    (row,) = product_rows([view], columns)
    assert row.cells["kernel"] == "left"
    assert "does not know such a product" in row.cells["why"]


def test_two_programs_are_compared_by_problem(reported, captured):
    program = _program(reported)
    product = program.report.products[1]
    other = Candidate.make("aten::mm")
    changed = replace(product, kernel=other, predicted_us=9.5)
    beside = replace(program, report=replace(program.report, products=(changed,)))
    views = view_products(program, {}, beside)
    assert (views[1].other, views[1].other_us) == ("aten::mm", 9.5)
    assert [view.other for view in views if view is not views[1]] == [""] * (len(views) - 1)


@pytest.mark.parametrize(
    ("given", "problem", "count"),
    [
        ("mm 512 4096 1024", Problem.make("mm", 512, 4096, 1024, "bf16"), 1),
        ("addmm 16 4097 4096 fp16 row/col x4",
         Problem.make("addmm", 16, 4097, 4096, "fp16", a_layout="row", b_layout="col"), 4),
        ("bmm 8 64 32 16 tf32 ×2",
         Problem.make("bmm", 64, 32, 16, "fp32", B=8, allow_tf32=True), 2),
    ],
)  # fmt: skip
def test_products_are_typed(given, problem, count):
    assert parse_products(f"{given}, {given}") == {problem: 2 * count}


# The pages


def test_what_saves_nothing_saves_0(captured):
    program = _program(captured)
    said = summary(program, view_products(program, {}, None), None)
    assert "0 µs, which saves 0 µs (0 %)" in said.plain


def test_a_chosen_kernel_is_compared_with_the_library_s(captured):
    program = _program(captured)
    said = ask_models([PRODUCTS[1]], program, None)[PRODUCTS[1]]
    third = said.ranked[2]
    assert why(said.question, said.ranked, 2).baseline == said.ranked[0]
    found = why(said.question, said.ranked, 2, chosen=True)
    assert (found.candidate, found.baseline) == (third, Candidate.make("aten::bias_addmm"))
    library = [candidate.is_extern for candidate in said.ranked].index(True)
    assert why(said.question, said.ranked, library, chosen=True).baseline == said.ranked[0]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_three_keys_lead_to_what_gains_most_and_why(make_app, captured, size):
    async with running(make_app(), size, "P", "enter", "w") as (app, _):
        page = app.screen
        assert isinstance(page, ProgramScreen)
        words = page.query_one("#ranking-words")
        assert words.region
        saved = max(row.record["saved_us"] for row in page.table.page.rows)
        assert words.content.plain.startswith(f"{PRODUCTS[1]} ×1\nsaves {saved:.2f} µs")
        assert "Why: predicted to be the fastest" in text_of(app)
        assert "What makes it faster" in text_of(app)


async def test_a_report_is_sorted_by_what_it_saves(make_app, reported):
    async with running(make_app(), (120, 40), "P", "enter") as (app, _):
        page = app.screen
        assert isinstance(page, ProgramScreen)
        shown = [row.record["saved_us"] for row in page.table.page.rows]
        assert shown == sorted(shown, reverse=True)
        report = record.read(reported)
        assert f"saves {report.saved_us:.2f} µs" in text_of(app)
        assert "All times are predictions" in text_of(app)
        words = page.query_one("#ranking-words").content.plain
        assert (
            "In layers.0.up, layers.1.up, layers.2.up and 1 more (Linear), program.py:18" in words
        )
        assert "counts what fusing the following operations saves" in words


async def test_a_page_says_whose_predictions_are_not_the_report_s(make_app, reported):
    record.write(replace(record.read(reported), model="mine@3"), reported)
    async with running(make_app(), (120, 40), "P", "enter") as (app, _):
        assert "mine@3 is not here: what the report does not say is gemm@17's." in text_of(app)


async def test_products_candidates_and_reasons_move_together(make_app, captured):
    async with running(make_app(), (120, 40), "P", "enter") as (app, pilot):
        page = app.screen
        await press(pilot, "down")
        assert f"{PRODUCTS[2]} ×1" in text_of(app)
        said = page._answers[PRODUCTS[2]]
        shown = [row.cells for row in page.query_one(Ranking).table.page.rows]
        assert shown == [row.cells for row in said.rows]
        await press(pilot, "tab", "down")
        second = said.ranked[1]
        reasons = page.query_one("#ranking-reasons").content.plain
        assert reasons.startswith(said.rows[1].cells["candidate"])
        await press(pilot, "enter")
        assert isinstance(app.screen, CandidateScreen)
        assert json.dumps(second.to_dict())[:30] in text_of(app)
        await press(pilot, "escape", "escape")
        assert app.screen is page  # in its list again
        assert page.table.has_focus_within


async def test_the_reasons_are_the_chosen_kernel_s_until_another_is_pointed_at(make_app, captured):
    async with running(make_app(), (120, 40), "P", "enter", "down", "down") as (app, pilot):
        said = app.screen._answers[PRODUCTS[0]]
        kernel = said.answers[0].choice.candidates[0]
        assert kernel == Candidate.make("aten::bias_addmm")  # the library's: not the first
        assert said.ranked[0] != kernel
        reasons = app.screen.query_one("#ranking-reasons").content
        assert reasons.plain.startswith("aten::bias_addmm")
        await press(pilot, "tab", "down", "up")
        reasons = app.screen.query_one("#ranking-reasons").content
        assert reasons.plain.startswith(said.rows[0].cells["candidate"])


async def test_another_model_and_another_program_beside(make_app, captured, reported, diode_home):
    (diode_home / "reports" / "damaged.json").write_text("{}")  # offered to nobody
    async with running(make_app(), (160, 50), "P") as (app, pilot):
        await press(pilot, "colon", *"captured", "enter")
        await press(pilot, "v")
        await click_on(pilot, "gemm@16")
        assert "2: kernel" in text_of(app)
        assert "compared with gemm@16 (2)" in text_of(app)
        assert all(row.record["other_us"] for row in app.screen.table.page.rows)
        await press(pilot, "v", "end", "enter")
        assert "compared with python program.py (2)" in text_of(app)


async def test_enter_opens_what_was_timed_else_what_would_be_chosen(make_app, store, captured):
    _add_timing(store, store.start_run("collect", {}), PRODUCTS[1])
    async with running(make_app(), (80, 24), "P", "enter", "enter") as (app, pilot):
        assert isinstance(app.screen, ProblemScreen)
        await press(pilot, "escape", "down", "enter")
        assert isinstance(app.screen, AskScreen)
        assert app.screen._problem == PRODUCTS[2]


async def test_just_the_listed_products_are_collected(make_app, store, captured):
    async with running(make_app(), (120, 40), "P", "enter") as (app, pilot):
        await press(pilot, "slash", *"4097", "enter", "c")
        file = app.screen.form.field("file").value
        assert tuple(problems_in(Path(file), 0)) == (PRODUCTS[1],)
        assert "1 problem ·" in text_of(app)  # of the plan


async def test_just_the_listed_products_are_tuned_to(make_app, store, captured, monkeypatch):
    asked = []

    def start(store, kind, spec):  # no process: a tuning needs a GPU
        asked.append((kind, spec))
        return store.run(store.start_run(kind, {}))

    monkeypatch.setattr("diode_engine.runs.start", start)
    async with running(make_app(), (120, 40), "P", "enter", "t") as (app, pilot):
        assert "Tune a model to these 3 products?" in text_of(app)
        await press(pilot, "y")
        assert isinstance(app.screen, RunScreen)
        ((kind, spec),) = asked
        assert kind == "tune"
        assert set(problems_in(Path(spec["shapes"][0]), 0)) == set(PRODUCTS)


async def test_the_page_of_a_process_follows_its_feedback(make_app, store, fed):
    async with running(make_app(), (120, 40), "P", "enter") as (app, pilot):
        assert len(app.screen.table.page.rows) == 1
        _add_timing(store, fed, PRODUCTS[2])
        await looked(pilot)
        assert len(app.screen.table.page.rows) == 2
        assert np.isfinite([row.record["saved_us"] for row in app.screen.table.page.rows]).all()


async def test_products_that_are_typed_become_a_report_with_choices(make_app):
    async with running(make_app(), (80, 24), "P") as (app, pilot):
        assert "No program is known yet" in text_of(app)
        await press(pilot, "n")
        await enter(pilot, "mm 1 2")
        assert "give M, N and K" in text_of(app)
        await enter(pilot, "addmm 16 4097 4096 bf16 row/col x4")
        assert isinstance(app.screen, ProgramScreen)
        assert "4 products for NVIDIA H200" in text_of(app)
    (file,) = record.list_reports()
    (product,) = record.read(file).products
    assert (product.count, product.outcome) == (4, record.Outcome.PREDICTED)
    assert product.kernel is not None
    assert product.saved_us > 0


async def test_a_link_and_the_palette_open_a_program(make_app, reported, captured):
    wanted = link(f"program/{reported}")
    async with running(make_app(wanted=wanted), (80, 24)) as (app, pilot):
        assert isinstance(app.screen, ProgramScreen)
        assert link_to(app.screen) == wanted
        await press(pilot, "colon", *"captured", "enter")
        assert isinstance(app.screen, ProgramScreen)
        assert link_to(app.screen) == link(f"program/{captured}")

"""The cascade: its teachers rank what its first network finds, with the same bits everywhere."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.operators import MM
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models import fit_distilled
from diode_engine.models.cascade import RANKED, Cascade
from diode_engine.models.coverage import Coverage, kernel
from diode_engine.models.distilled import quantize
from diode_engine.models.fit_distilled import fit_cascade, join_teacher
from diode_engine.models.fit_network import NetworkSettings
from diode_engine.models.fitting import Examples
from diode_engine.models.predictor import Predictor
from tests.models.conftest import network, network_on
from tests.samples import tile

TILES = [
    tile(m, n, 32, s) for m, n in itertools.product((16, 32, 64, 128), repeat=2) for s in (2, 3, 4)
]
LIBRARY = Candidate.make("aten::mm")


def test_teachers_answer_where_there_are_networks_of_them(x, cascade):
    answers = cascade.answers(x)
    assert np.array_equal(answers[1], cascade.first.answers(x)[1])
    for place in (0, 2):
        assert np.array_equal(answers[place], cascade.teachers[place].answers(x)[0])
    assert np.array_equal(
        cascade.predict(x), (answers[0] + answers[1] + answers[2]) / np.float32(3)
    )


def test_the_likely_candidates_and_the_librarys_are_ranked_by_all(
    cascade, save, tmp_path, monkeypatch
):
    offered = [*TILES, LIBRARY]
    kernels = (kernel(MM, "aten::mm"), kernel(MM, "triton::mm"))
    coverage = Coverage(kernels, ("float16",), ("mm float16",))
    predictor = Predictor(save(tmp_path / "model", (cascade,), coverage=coverage))
    problem = Problem.make("mm", 512, 512, 1024, "float16")
    ranking = predictor.predict(problem, offered)
    every = predictor.predict_us(problem, offered)
    assert not np.isnan(every).any()
    first = cascade.first.space_answers(features.space(problem, offered, H200)).mean(axis=0)
    likely = {*np.argsort(first, kind="stable")[:RANKED].tolist(), len(TILES)}
    assert set(ranking.order.tolist()) == likely
    assert ranking.order.tolist() != sorted(likely, key=first.__getitem__)  # as the first would
    assert every[ranking.order].tolist() == sorted(every[list(likely)])
    few = predictor.predict(problem, offered[-RANKED:])
    assert len(few.order) == RANKED
    monkeypatch.setattr(Cascade, "likely", lambda _, space: np.zeros(space.rest.shape[1], np.bool_))
    assert predictor.predict(problem, offered).order.tolist() == [len(TILES)]  # the library's alone


def test_the_sieve_alone_says_what_is_ranked(x, cascade):
    sieve = quantize(network_on(x, 7), x)
    sieved = replace(cascade, sieve=sieve)
    assert np.array_equal(sieved.answers(x), cascade.answers(x))
    problem = Problem.make("mm", 512, 512, 1024, "float16")
    space = features.space(problem, TILES, H200)
    assert np.array_equal(sieved.space_answers(space), cascade.space_answers(space))
    likely = sieved.likely(space)
    assert likely is not None
    nearest = np.argsort(sieve.space_answers(space)[0], kind="stable")[:RANKED]
    assert set(np.flatnonzero(likely)) == set(nearest)
    assert not np.array_equal(likely, cascade.likely(space))
    again = Cascade.from_bytes(sieved.to_bytes())
    assert np.array_equal(again.likely(space), likely)


def test_a_sieve_learns_what_the_cascade_answers(x, cascade, monkeypatch):
    monkeypatch.setattr(
        fit_distilled, "SIEVE", NetworkSettings(hidden=(16,), learning_rate=1e-2, averaging=0.9)
    )
    problem = np.repeat(np.arange(len(x) // 8 + 1), 8)[: len(x)]
    # What was measured takes no part.
    examples = Examples(x, cascade.first.answers(x)[0] + 3, problem, cascade.first.answers(x))
    found = fit_cascade((), examples, examples, NetworkSettings(hidden=(16,), epochs=15))
    answers = found.predict(x)
    assert np.abs(found.sieve.predict(x) - answers).mean() < answers.std() / 4
    assert np.abs(answers - examples.log_us).mean() > answers.std()


def test_a_file_with_too_much_in_it_is_refused(x, cascade):
    beyond = Cascade(cascade.first, {3: cascade.teachers[0]}, cascade.sieve)
    with pytest.raises(ModelError, match="unknown tensors"):
        Cascade.from_bytes(beyond.to_bytes())
    two = Cascade(cascade.first, {0: quantize(network_on(x, 1, heads=2), x)}, cascade.sieve)
    with pytest.raises(ModelError, match="one output"):
        Cascade.from_bytes(two.to_bytes())
    with pytest.raises(ModelError, match="does not fit its place"):
        Cascade.from_bytes(cascade.to_bytes().replace(b'"dtype":"I16"', b'"dtype":"F16"'))
    with pytest.raises(ModelError, match="lacks the tensor"):
        Cascade.from_bytes(cascade.first.to_bytes())


def test_what_has_no_form_in_whole_numbers_is_left_to_the_first_network(x, cascade):
    examples = Examples(x, cascade.predict(x), np.repeat(np.arange(len(x) // 8 + 1), 8)[: len(x)])
    teacher = (cascade, network_on(x, 3), network(1, residual=False))
    found = join_teacher(cascade.first, teacher, examples)
    assert sorted(found.teachers) == [1]
    wanted = quantize(network_on(x, 3), x)
    assert np.array_equal(found.teachers[1].answers(x), wanted.answers(x))

"""The distilled network: what quantising costs, and that nothing but the row matters."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.operators import MM
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models.coverage import Coverage, kernel
from diode_engine.models.distilled import EXACT, LEVELS, DistilledNetwork, Layer
from diode_engine.models.predictor import SHORTLIST, Predictor
from diode_engine.models.protocol import TimingModel
from tests.models.conftest import HIDDEN, network, network_on
from tests.samples import tile


@pytest.fixture(params=["distilled", "cascade"])
def model(request):
    """Each of the types of models that answer in whole numbers."""
    found: TimingModel = request.getfixturevalue(request.param)
    return found


def test_whole_numbers_answer_as_the_network_does(x, distilled):
    wanted = network_on(x, 5, HIDDEN, heads=2).predict(x)
    error = distilled.predict(x) - wanted
    assert np.sqrt(np.mean(error**2)) < 0.005
    assert np.std(wanted - x[:, features.BASE] * np.log(2)) > 0.2  # it answers something


def test_every_sum_is_exact(x, distilled):
    """The same in float64, which holds sums a thousand million times as large."""
    levels = distilled._levels(x.T, slice(None))
    for layer in distilled.layers:
        assert np.array_equal(np.rint(layer.weight), layer.weight)
        sums = layer.weight @ levels + layer.bias
        assert np.array_equal(
            sums, layer.weight.astype(np.float64) @ levels.astype(np.float64) + layer.bias
        )
        levels = np.clip(np.rint(sums * layer.scale), 0, LEVELS)


def test_a_row_has_the_same_bits_alone_in_a_batch_and_in_its_space(x, model, table):
    bulk = model.predict(x)
    for i in range(0, len(x), 97):
        assert model.predict(x[i : i + 1])[0] == bulk[i]
    assert np.array_equal(model.predict(x[::-1])[::-1], bulk)
    many = np.tile(np.arange(len(table.candidates)), 70)  # more than a block
    candidates = [table.candidates[c] for c in many]
    for place in (0, 11):
        problem = table.problems[place]
        space = features.space(problem, candidates, H200)
        rows = features.matrix((problem,), candidates, many * 0, np.arange(len(many)), H200)
        answers = model.space_answers(space)
        assert np.array_equal(answers, model.answers(rows))
        assert np.array_equal(answers.mean(axis=0), model.predict(rows))


@pytest.mark.parametrize("kind", ["distilled", "network"])
def test_of_many_candidates_the_likely_ones_are_ranked(kind, distilled, save, tmp_path):
    tiles = [
        tile(m, n, k, s, w)
        for m, n, k in itertools.product((16, 32, 64, 128, 256), repeat=3)
        for s in range(1, 6)
        for w in (2, 4)
    ]
    offered = [*tiles, Candidate.make("aten::mm")]
    member = distilled if kind == "distilled" else network(1)
    kernels = (
        kernel(MM, "aten::mm"),
        *(kernel(MM, "triton::mm", many=m) for m in (False, True)),
    )
    coverage = Coverage(kernels, ("float16",), ("mm float16",))
    predictor = Predictor(save(tmp_path / "model", (member,), coverage=coverage))
    problem = Problem.make("mm", 5, 300, 700, "float16")
    ranking = predictor.predict(problem, offered)
    every = predictor.predict_us(problem, offered)
    assert not np.isnan(every).any()
    short = ~np.isnan(ranking.predicted_us)
    assert SHORTLIST <= short.sum() < len(offered)
    assert short[-1]  # the library's, whatever its base time
    # A network's last bits follow the rows that it is asked together with.
    np.testing.assert_allclose(ranking.predicted_us[short], every[short], rtol=1e-5)
    order = np.argsort(ranking.predicted_us, kind="stable")[: short.sum()]
    assert ranking.order.tolist() == order.tolist()
    base, taken = features.space(problem, tiles, H200).base, short[:-1]
    assert base[taken].max() < base[~taken].min()
    few = predictor.predict(problem, offered[-SHORTLIST:])
    assert len(few.order) == SHORTLIST


def test_the_file_is_read_as_it_was_written(x, model):
    again = type(model).from_bytes(model.to_bytes())
    assert np.array_equal(again.answers(x), model.answers(x))


def test_a_scale_that_gives_no_times_is_refused(distilled):
    *layers, last = distilled.layers
    wild = Layer(last.weight, last.bias, np.full_like(last.scale, 3e37))
    with pytest.raises(ModelError, match="predicts no times"):
        DistilledNetwork(distilled.low, distilled.step, (*layers, wild))


def test_weights_that_could_not_be_summed_exactly_are_refused(distilled):
    first, *others = distilled.layers
    large = Layer(np.full_like(first.weight, EXACT // 100), first.bias, first.scale)
    broken = Layer(first.weight + np.float32(0.5), first.bias, first.scale)
    with pytest.raises(ModelError, match="too large"):
        DistilledNetwork(distilled.low, distilled.step, (large, *others))
    halves = DistilledNetwork(distilled.low, distilled.step, (broken, *others))
    with pytest.raises(ModelError, match="whole numbers"):
        DistilledNetwork.from_bytes(halves.to_bytes())


def test_a_layer_without_outputs_is_refused(distilled):
    tensors = distilled.tensors()
    for name in ("weight.0", "bias.0", "scale.0"):
        tensors[name] = tensors[name][:0]
    tensors["weight.1"] = tensors["weight.1"][:, :0].copy()
    with pytest.raises(ModelError, match="layer 0 has no outputs"):
        DistilledNetwork.from_bytes(save(tensors))


ASK = """
import json, sys
import numpy as np
from pathlib import Path
from diode_engine.models.predictor import Predictor
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem

predictor = Predictor.load(Path(sys.argv[1]))
candidates = [Candidate.from_dict(c) for c in json.loads(sys.argv[2])]
bits = [
    predictor.predict_us(Problem.make("mm", m, 512, 777, "float16"), candidates).tobytes().hex()
    for m in (1, 100, 4000)
]
print(json.dumps(bits))
"""


def test_processes_and_threads_make_no_difference(tmp_path, save, distilled, candidates):
    save(tmp_path / "model", (distilled,))
    asked = json.dumps([c.to_dict() for c in candidates * 40])  # enough for BLAS to share out
    answers = {
        subprocess.run(
            [sys.executable, "-c", ASK, str(tmp_path / "model"), asked],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            check=True, capture_output=True, text=True,
        ).stdout
        for threads in ("1", "2", "4")
    }  # fmt: skip
    assert len(answers) == 1


def test_the_predictor_asks_for_the_space_as_for_rows(tmp_path, save, distilled, table):
    predictor = Predictor(save(tmp_path / "model", (distilled,)))
    bulk = predictor.predict_table(table)
    for index, rows in list(table.groups())[:20]:
        asked = [table.candidates[c] for c in table.candidate[rows]]
        assert np.array_equal(predictor.predict_us(table.problems[index], asked), bulk[rows])

"""The programs of other architectures; none is built here but a small module."""

from __future__ import annotations

import torch
from torch import nn


def test_every_program_has_a_name_of_its_own_and_the_order_is_the_same():
    import architectures

    models = architectures.models()
    assert len({model.name for model in models}) == len(models) > 1000
    assert {model.source for model in models} == {"transformers", "timm", "torchvision"}
    assert [model.name for model in architectures.models()] == [model.name for model in models]
    first = models[:100]  # a time limit may end a run after these
    assert len({model.name.split(" ")[0] for model in first}) == 100


def test_of_layers_that_repeat_one_of_each_kind_is_left():
    from architectures import few_layers

    def block(size):
        return nn.Sequential(nn.Linear(8, size), nn.ReLU(), nn.Linear(size, 8))

    model = nn.Sequential(block(16), block(32), block(16), block(32), nn.ReLU(), block(24))
    left = few_layers(model)
    assert [type(part).__name__ for part in left] == ["Sequential"] * 2 + ["ReLU", "Sequential"]
    assert [len(part) for part in left if isinstance(part, nn.Sequential)] == [3, 3, 3]
    assert left(torch.zeros(2, 8)).shape == (2, 8)

"""Chooses cuBLASLt's algorithm for a product that gets the library's kernel."""

from __future__ import annotations

import logging
import time
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch._inductor import config as inductor_config
from torch._inductor.virtualized import V

from diode_engine.choosing.outcomes import Outcomes
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.inductor.choosing.compile_options import (
    has_frozen_choices,
    is_batch_invariant,
    is_freezing,
)
from diode_engine.inductor.library.cublaslt import (
    Algorithm,
    CublasError,
    Product,
    is_vector,
)
from diode_engine.inductor.library.product import ALIGNMENT, Plan, library_of
from diode_engine.models.library_algorithms import AlgorithmModel, Config, Offer, model_for

log = logging.getLogger(__name__)

_LISTED = 32  # algorithms of the heuristic, at most


class Operands(NamedTuple):
    """A product's tensors without data. The bias is None, a vector, which may be expanded to the
    output's rows, or a matrix."""

    bias: torch.Tensor | None
    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor


class AlgorithmChooser:
    """Chooses by the shipped model of a GPU, where it has one."""

    def __init__(self, hardware: Hardware, outcomes: Outcomes) -> None:
        self._hardware = hardware
        self._outcomes = outcomes
        # The algorithms of the model by types: they do not depend on a product's sizes.
        self._made: dict[tuple[int, ...], list[tuple[Config, Algorithm]]] = {}
        # By problem, device and layouts; threads may write the same.
        self._plans: dict[tuple[Any, ...], Plan | None] = {}

    @cached_property
    def model(self) -> AlgorithmModel | None:
        """The model; None where the GPU has none, or it cannot be read."""
        try:
            return model_for(self._hardware)
        except ModelError as error:
            what = "the model of the library's algorithms could not be read"
            self._outcomes.report_failure(what, error)
            return None

    @property
    def identity(self) -> str:
        """A key of everything that the choices depend on."""
        return "none" if self.model is None else self.model.key

    def choose(self, problem: Problem, operands: Operands, device: int) -> Plan | None:
        """Return how to compute the product; None where torch's own call is to be used."""
        model = self.model
        if model is None or not model.knows(problem) or not _is_wanted() or not _fits(operands):
            return None
        remembers = bool(inductor_config.diode_cache_predictions)  # type: ignore[attr-defined]
        layouts = [None if each is None else (each.shape, each.stride()) for each in operands]
        key = problem, device, *layouts
        if not remembers or key not in self._plans:
            start = time.perf_counter()
            try:
                self._plans[key] = self._find(model, problem, operands, device)
            except (CublasError, OSError) as error:
                log.debug("torch's own call is used for %s: %s", problem, error)
                return None
            finally:
                self._outcomes.stats.count_seconds(time.perf_counter() - start)
        plan = self._plans[key]
        if plan is not None:
            self._outcomes.stats.count("algorithms_chosen")
        return plan

    def _find(
        self, model: AlgorithmModel, problem: Problem, operands: Operands, device: int
    ) -> Plan | None:
        """Return what `choose` returns, of what cuBLASLt accepts. Raises CublasError and OSError
        where cuBLASLt fails."""
        library = library_of(device)
        if library.version != model.version:  # its numbers may mean other kernels
            return None
        product = Product(
            library, operands.a, operands.b, operands.out, bias=operands.bias,
            tf32=problem.allow_tf32,
        )  # fmt: skip
        results = product.list_algorithms(_LISTED)
        if not results:
            return None
        configs = [library.config(result.algorithm) for result in results]
        listed = len(results)
        for config, algorithm in self._known(product, model):
            result = None if config in configs else product.check(algorithm)
            if result is not None:
                results.append(result)
                configs.append(config)
        offers = [
            Offer(config, result.workspace, result.waves, *([place] if place < listed else []))
            for place, (config, result) in enumerate(zip(configs, results, strict=True))
        ]
        place = model.choose(problem, offers, self._hardware)
        # torch copies a matrix to the output before it adds the product.
        copies = operands.bias is not None and not is_vector(operands.bias)
        if not place and not copies:
            return None
        return Plan(_name(problem), problem.allow_tf32, configs[place])

    def _known(self, product: Product, model: AlgorithmModel) -> list[tuple[Config, Algorithm]]:
        if product.types not in self._made:
            library, made = product.library, []
            ids = {config.id for config in model.configs}.intersection(product.ids())
            initial = {number: product.initial(number) for number in ids}
            before = {number: library.config(initial[number]) for number in ids}
            for config in model.configs:
                if config.id in ids:
                    algorithm = library.changed(initial[config.id], config, before[config.id])
                    if algorithm is not None:
                        made.append((config, algorithm))
            self._made[product.types] = made
        return self._made[product.types]


def _is_wanted() -> bool:
    """Return whether the options of the compile and the program allow another algorithm."""
    unusual = V.graph.cpp_wrapper or is_batch_invariant() or has_frozen_choices() or is_freezing()
    reduced = torch.backends.cuda.matmul.allow_fp16_accumulation
    return not (unusual or reduced)


def _fits(operands: Operands) -> bool:
    """Return whether all strides are whole multiples of what the algorithms were timed with."""
    tensors = [tensor for tensor in operands if tensor is not None]
    itemsize = operands.a.dtype.itemsize
    if any(tensor.dtype != operands.a.dtype for tensor in tensors):
        return False
    steps = [step for tensor in tensors for step in tensor.stride() if step != 1]
    return not any(step * itemsize % ALIGNMENT for step in steps)


def _name(problem: Problem) -> str:
    p = problem
    return f"{p.op} {p.B}x{p.M}x{p.N}x{p.K} {p.dtype}"

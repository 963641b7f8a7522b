"""The frozen kernel of one product, found among what Inductor offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NoReturn

import numpy as np

from diode_engine.choosing.frozen import FrozenChoice, FrozenChoices, ProductForm
from diode_engine.choosing.invariant import layer_of
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.choosing.policy import Comparison, plain_library_call
from diode_engine.choosing.proofs import proven_orders
from diode_engine.choosing.stats import Fallback
from diode_engine.choosing.summation import order_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem


@dataclass(frozen=True)
class FrozenKernel:
    """The choice of a product in a file of frozen choices. It has a kernel."""

    file: FrozenChoices
    choice: FrozenChoice

    @classmethod
    def find(cls, file: FrozenChoices, product: ProductForm) -> FrozenKernel:
        """Return the kernel of the product. Raises FrozenChoicesError where the file does not have
        the product, LeftToStock where it says that the product is lowered as by plain
        torch.compile."""
        choice = file.find(product)
        if choice.kernel is None:
            raise LeftToStock(Fallback.NO_PREDICTION, choice.why)
        return cls(file, choice)

    def refuse(self) -> NoReturn:
        """Raise FrozenChoicesError, since Inductor does not offer the kernel."""
        choice = self.choice
        self.file.refuse(f"Inductor does not offer {choice.kernel} for {choice.product}")

    def check_order(self, hardware: Hardware, torch: str, triton: str) -> None:
        """Raise FrozenChoicesError where results may depend on the batch with the kernel, as after
        the file was edited: its order of summation is not proven on this GPU and with these
        versions, or other bits come of another kernel that the file has for the layer."""
        product, kernel = self.choice.product, self.choice.kernels[0]
        own = order_of(product.problem, kernel, hardware)
        proven = proven_orders(hardware.arch, torch, triton)
        same = next((orders for orders in proven if own in orders), None)
        if same is None:
            how = "an order that is not known" if own is None else f"the order {own}"
            self.file.refuse(
                f"{kernel} for {product} adds up in {how}, which is not proven on "
                f"{hardware.name} with torch {torch} and Triton {triton}"
            )
        for other in _of_layers(self.file)[layer_of(product.problem)]:
            for theirs in other.kernels:
                if order_of(other.product.problem, theirs, hardware) not in same:
                    self.file.refuse(
                        f"it has {kernel} for {product} and {theirs} for {other.product}, which "
                        "add up in orders that do not give the same bits"
                    )

    def places(self, candidates: Sequence[Candidate], kernel: Candidate | None = None) -> list[int]:
        """Return the index of the kernel, or of this one of several, among the candidates of one
        request. Where an op asks several times and this is another request, it is that of the
        library's kernel, if there is one. Raises FrozenChoicesError where the kernel's template is
        offered without the kernel."""
        kernel, columns = kernel or self.choice.kernel, encode(candidates)
        assert kernel is not None
        if kernel.template not in columns.templates:
            return [int(i) for i in np.flatnonzero(plain_library_call(candidates))[:1]]
        alike = columns.template == columns.templates.index(kernel.template)
        own = encode([kernel])
        for column in fields(CandidateColumns)[3:]:  # records of few candidates need be made
            alike &= getattr(columns, column.name) == getattr(own, column.name)[0]
        places = [i for i in map(int, np.flatnonzero(alike)) if candidates[i] == kernel]
        return places or self.refuse()

    def compare(self, candidates: Sequence[Candidate], places: Sequence[int]) -> Comparison:
        """Return the comparison of the candidates in which only the times of the kernel, which is
        at `places`, and of the library's are known."""
        choice, library = self.choice, plain_library_call(candidates)
        us = np.full((1, len(candidates)), np.nan)
        us[0, library] = choice.library_us or np.nan
        for place in places:
            if candidates[place] in choice.kernels:
                us[0, place] = choice.predicted_us or np.nan
        return Comparison(
            problems=(choice.product.problem,),
            candidates=candidates,
            predicted_us=us,
            saved_us=(0.0,),
            library=library,
            proven=np.ones(len(candidates), np.bool_),
            margin=1.0,
            keep=1,
            threshold=1.0,
            confidence=choice.confidence,
        )


@lru_cache(8)
def _of_layers(file: FrozenChoices) -> Mapping[Problem, Sequence[FrozenChoice]]:
    """Return the choices of kernels whose results must not depend on the batch, by layer."""
    found: dict[Problem, list[FrozenChoice]] = {}
    for choice in file.choices:
        if choice.product.invariant and choice.kernel is not None:
            found.setdefault(layer_of(choice.product.problem), []).append(choice)
    return found

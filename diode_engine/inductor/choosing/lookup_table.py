"""A model's choices as a table for Inductor's own LookupTableChoices
(torch._inductor.lookup_table), for programs that cannot depend on Diode.

The installed torch makes the keys and the entries. A key has this torch's form. An entry has the
hash of the template's source (with `torch._inductor.config.lookup_table.check_src_hash` another
torch's template is not taken) and all parameters of a kernel, since torch 2.11 does not add missing
ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch._inductor.lookup_table.choices import LookupTableChoices

from diode_engine.choosing.chooser import TimePredictor
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.candidates import candidate_of

LookupEntry = Mapping[str, Any]


def lookup_entries(
    problem: Problem, predictor: TimePredictor, *, top: int = 1
) -> dict[str, list[LookupEntry]]:
    """The entries of a table for one problem on the present GPU, by the key under which Inductor
    asks. They are the `top` kernels with the shortest predicted times, of those that can be
    launched. Empty where the model has no prediction.

    From torch 2.13 on addmm asks for the library's kernel and for Triton's separately. A table
    cannot choose between these, so it has the best of each, and Inductor times them. Persistent TMA
    kernels are among the choices where Inductor's option for them is on; it must be on too where
    the table is used.
    """
    keys = LookupTableChoices()

    def read(offers: kernels.Offers, inputs: Any, op_name: str) -> tuple[str | None, list[Any]]:
        key = keys.make_lookup_key(inputs, op_name, include_device=True)
        inductors = [offers[uid] for uid in offers if not template_of(uid).own]
        return key, list(chain.from_iterable(inductors))

    with kernels.graph_for(problem, torch.device("cuda", 0)) as operands:
        asked = kernels.read_offers(read, problem.op, operands, fields=problem.op_fields)
    table: dict[str, list[LookupEntry]] = {}
    for key, offered in asked:
        if key is not None and offered:
            best = _best(problem, offered, predictor, top)
            table.setdefault(key, []).extend(map(_entry, best))
    return {key: entries for key, entries in table.items() if entries}


def _best(
    problem: Problem, offered: Sequence[Any], predictor: TimePredictor, top: int
) -> list[Any]:
    choices: dict[Candidate, Any] = {candidate_of(choice): choice for choice in offered}
    candidates = list(choices)
    us = predictor.predict_us(problem, candidates)
    us = np.where(fits(problem, candidates, detect(0)), us, np.nan)
    order = np.argsort(us, kind="stable")[: min(top, int(np.count_nonzero(~np.isnan(us))))]
    return [choices[candidates[i]] for i in order]


def _entry(choice: Any) -> LookupEntry:
    entry = {"template_id": choice.template.uid, **choice.params.to_kwargs()}
    source = choice.template.src_hash
    return entry if source is None else {**entry, "template_hash": source}

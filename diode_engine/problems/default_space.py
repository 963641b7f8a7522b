"""The candidates that max-autotune times with its search space DEFAULT, computed without torch.

They are what torch._inductor offers on NVIDIA GPUs (torch 2.10 to 2.15, default options), by the
table of templates; a test compares them with the real Inductor. Persistent TMA kernels are not
among them: they are off by default.
"""

from __future__ import annotations

import re
from functools import lru_cache

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import Bias
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of, templates_for
from diode_engine.core.templates.template import Configs, Template, Version

_NEWEST = (999, 0)
_FROM_2_13 = (2, 13)


def default_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """The candidates, ATen's first, as this version of torch has them (the newest known one
    where it is empty or not a version)."""
    version = version_of(torch)
    return tuple(
        candidate
        for template in offered(problem, version)
        if not template.option
        for candidate in _candidates(
            template.name, problem.op.name, *_reach(template, problem), version
        )
    )


def version_of(torch: str) -> Version:
    """The major and minor version. Where the text has none, a number newer than any torch."""
    version = re.match(r"(\d+)\.(\d+)", torch)
    return _NEWEST if version is None else (int(version[1]), int(version[2]))


def offered(problem: Problem, torch: Version) -> list[Template]:
    """The templates of which Inductor offers candidates for such a problem. Templates that need an
    option are among them; templates whose kernels are wrong in this torch are not."""
    templates = [
        t
        for t in templates_for(problem.op)
        if torch >= t.right_from and t.space_for(problem.op).offered(problem)
    ]
    if problem.bias in (Bias.VECTOR, Bias.SCALAR):
        if torch >= _FROM_2_13:  # see inductor.lowering.candidates.candidate_of
            templates = [t for t in templates if not t.recorded_with_bias_vector]
    else:
        templates = [t for t in templates if not t.bias_vector]
    if any(t.excludes_tiled(problem.M, problem.N, problem.K) for t in templates):
        templates = [t for t in templates if not t.tiled]
    return templates


def candidates_of(template: Template, configs: Configs) -> tuple[Candidate, ...]:
    """The template's candidates with these configs."""
    return tuple(
        Candidate.make(template.name, **dict(zip(template.parameters, config, strict=True)))
        for config in configs
    )


def _reach(template: Template, problem: Problem) -> tuple[int, int, int]:
    return template.space_for(problem.op).reach(*problem.one_group)


@lru_cache(maxsize=1024)
def _candidates(
    name: str, op: str, m: int, n: int, k: int, torch: Version
) -> tuple[Candidate, ...]:
    template = template_of(name)
    return candidates_of(template, template.space_for(op).default_configs(m, n, k, torch))

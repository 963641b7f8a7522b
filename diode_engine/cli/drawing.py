"""The options that say which problems are drawn, for the commands that draw problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from diode_engine.cli.options import add_options, option, split_names, unused_option
from diode_engine.core.operand import TYPES, Layout
from diode_engine.core.operators import OPERATORS

if TYPE_CHECKING:
    from diode_engine.problems.sources import Wanted

SOURCES = (
    "transformers", "zoo", "log-normal", "attention", "inner-batch", "skinny", "widths", "odd",
    "grid", "powers", "harvest", "eight-bit", "experts",
)  # fmt: skip
LAYOUTS = tuple(f"{a}/{b}" for a in Layout for b in Layout)


def named_sources(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The sources that a command's options name, with their parameters."""
    flags = ("log_normal", "log-normal"), ("power_of_two", "powers")
    return (*options["sources"], *(source for flag, source in flags if options[flag]))


def wanted_problems(options: Mapping[str, Any], *, held_out: bool = False) -> Wanted:
    """The condition that a command's options set for problems to be taken, with `held_out` only
    those that training holds out. Raises CollectionError for an unknown name."""
    from diode_engine.problems.sources import Wanted

    ops, dtypes, layouts = (split_names(options[kind]) for kind in ("ops", "dtypes", "layouts"))
    least, most = options["min_size"], options["max_size"]
    return Wanted(ops, dtypes, layouts, least=least, most=most, held_out=held_out)


_SIZES = "--source, --min-size and --max-size say which sizes are drawn"
_LOG_NORMAL = "the distribution is set as in --source log-normal:median=700,sigma=1.5"
# The command gets their values, for `wanted_problems` and `named_sources`.
drawn_options = add_options(
    option(
        "--source", "sources", metavar="NAME[:PARAMETER=VALUE,...]", multiple=True,
        heading="Problems", label="Sources",
        help="Where problems are drawn from: names with parameters, such as skinny grid:m=1/64.",
        details=f"The names are {', '.join(SOURCES)}. It may be repeated, then each source has an "
        "equal share. The values in a list are separated by slashes: "
        "grid:m=1/64,n=4096,k=4096 or transformers:models=llama-3-8b/qwen2-7b.",
        default_text="a mix of the first four",
    ),
    option("--log-normal", is_flag=True, help="The same as --source log-normal."),
    option("--power-of-two", is_flag=True, help="The same as --source powers."),
    option(
        "--ops", "--operations", metavar="OP,...", default="", heading="Problems",
        label="Operators", names=tuple(OPERATORS), help="Only problems of these operators.",
    ),
    option(
        "--dtypes", metavar="TYPE,...", default="", heading="Problems", label="Types", names=TYPES,
        help="Only problems of these types of the operands; fp32 is without TF32.",
        details=f"The types are {', '.join(TYPES)} (or bfloat16 and the like).",
    ),
    option(
        "--layouts", metavar="A/B,...", default="", heading="Problems", names=LAYOUTS,
        help="Only problems whose operands have these layouts; a Linear layer's forward is "
        "row/col.",
        details=f"The layouts are {', '.join(LAYOUTS)}.",
    ),
    option(
        "--min-size", type=click.IntRange(1), help="Only problems with M, N and K of at least this."
    ),
    option(
        "--max-size", type=click.IntRange(1), help="Only problems with M, N and K of at most this."
    ),
    unused_option("--no-rectangular", is_flag=True, instead=_SIZES),
    unused_option("--no-odd-sizes", is_flag=True, instead=_SIZES),
    *(
        unused_option(f"--log-normal-{size}-{parameter}", instead=_LOG_NORMAL)
        for size in "mnk"
        for parameter in ("mean", "std")
    ),
)  # fmt: skip

"""The options that say which problems are drawn, for the commands that draw problems."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from diode_engine.cli.options import names, unused_option

if TYPE_CHECKING:
    from diode_engine.problems.sources import Wanted

SOURCES = (
    "transformers", "zoo", "log-normal", "attention", "inner-batch", "skinny", "widths", "odd",
    "grid", "powers", "harvest", "eight-bit", "experts",
)  # fmt: skip


@dataclass(frozen=True)
class DrawnProblems:
    """The options' values: the sources by name, and which of their problems are taken."""

    sources: tuple[str, ...]
    ops: str
    dtypes: str
    layouts: str
    min_size: int | None
    max_size: int | None

    def wanted(self, *, held_out: bool = False) -> Wanted:
        """The condition for problems to be taken, with `held_out` only those that training holds
        out. Raises CollectionError for an unknown name."""
        from diode_engine.problems.sources import Wanted

        return Wanted(
            names(self.ops), names(self.dtypes), names(self.layouts),
            least=self.min_size, most=self.max_size, held_out=held_out,
        )  # fmt: skip


def drawn_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets `drawn: DrawnProblems`."""

    @functools.wraps(command)
    def gathered(
        *args: Any, sources: tuple[str, ...], log_normal: bool, power_of_two: bool, ops: str,
        dtypes: str, layouts: str, min_size: int | None, max_size: int | None, **others: Any,
    ) -> Any:  # fmt: skip
        named = (*sources, *["log-normal"] * log_normal, *["powers"] * power_of_two)
        drawn = DrawnProblems(named, ops, dtypes, layouts, min_size, max_size)
        return command(*args, drawn=drawn, **others)

    decorated: Callable[..., Any] = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_SIZES = "--source, --min-size and --max-size say which sizes are drawn"
_LOG_NORMAL = "the distribution is set as in --source log-normal:median=700,sigma=1.5"
_OPTIONS = (
    click.option(
        "--source",
        "sources",
        metavar="NAME[:PARAMETER=VALUE,...]",
        multiple=True,
        help=f"Where problems are drawn from, one of {', '.join(SOURCES)}; may be repeated, then "
        "each source has an equal share. The values in a list are separated by slashes: "
        "grid:m=1/64,n=4096,k=4096 or transformers:models=llama-3-8b/qwen2-7b. [default: a mix of "
        "the first four]",
    ),
    click.option("--log-normal", is_flag=True, help="The same as --source log-normal."),
    click.option("--power-of-two", is_flag=True, help="The same as --source powers."),
    click.option(
        "--ops",
        "--operations",
        metavar="OP,...",
        default="",
        help="Only problems of these operators.",
    ),
    click.option(
        "--dtypes",
        metavar="TYPE,...",
        default="",
        help="Only problems of these types: bf16, fp16, fp32, tf32, e4m3, e5m2, int8 (or bfloat16 "
        "and the like).",
    ),
    click.option(
        "--layouts",
        metavar="A/B,...",
        default="",
        help="Only problems whose operands have these layouts: row/row, row/col, ...",
    ),
    click.option(
        "--min-size", type=click.IntRange(1), help="Only problems with M, N and K of at least this."
    ),
    click.option(
        "--max-size", type=click.IntRange(1), help="Only problems with M, N and K of at most this."
    ),
    unused_option("--no-rectangular", is_flag=True, instead=_SIZES),
    unused_option("--no-odd-sizes", is_flag=True, instead=_SIZES),
    *(
        unused_option(f"--log-normal-{size}-{parameter}", instead=_LOG_NORMAL)
        for size in "mnk"
        for parameter in ("mean", "std")
    ),
)

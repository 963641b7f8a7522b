"""What the columns of the tables mean, with their units, for the help."""

from __future__ import annotations

from collections.abc import Mapping

_TIMED = "median measured time, in µs; where it was timed several times, over all of them"
_EFFICIENCY = "1 is as fast as the best kernel that was measured"

_PROBLEM: Mapping[str, str] = {
    "problem": "its number in the store, for links such as problem/501",
    "op": "the operator: mm, addmm (with a bias), bmm, baddbmm, scaled_mm",
    "m": "rows of the first operand and of the result",
    "n": "columns of the second operand and of the result",
    "k": "columns of the first operand, rows of the second: what is summed over",
    "b": "how many products of this size are one problem (bmm); 1 otherwise",
    "dtype": "the operands' type, and the result's where it is another",
    "layout": "how the two operands lie in memory: row or column after column",
    "align": "of the two operands, in elements: what every row's start is divisible by",
    "bias": "how the bias lies, where the operator has one",
    "best": "the time of the fastest candidate, in µs",
    "aten": "the time of the library's kernel (cuBLAS or hipBLASLt), in µs",
    "efficiency": "of the library: the best time over the library's; 1 is as fast as the best",
    "candidates": "distinct kernels that were tried, also those that failed",
    "failed": "candidates that have no time, since they failed",
    "timings": "measurements in the store, also repeated ones",
    "gpu": "what it was timed on",
    "fastest": "the candidate with the best time",
}

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "runs": {
        "mark": "● marked for comparison, in the colour of its curves; ★ pinned",
        "run": "its number, for links such as run/11",
        "kind": "collect, train, validate, import, …",
        "state": "queued, running, cancelling, done, failed, cancelled, or dead: its process is "
        "gone",
        "progress": "the part of its work that is done, in %",
        "rate": "timings a second, over the last minute",
        "left": "time until it is done, at its pace so far",
        "duration": "how long it has worked",
        "family": "the kind of model that a training makes, or the model that it tunes",
        "efficiency": f"of the model on held-out problems, a geometric mean; {_EFFICIENCY}. In "
        "brackets: of a member that is being fitted, on problems that it is not fitted to",
        "against": "its efficiency minus that of the pinned training",
        "model": "what a training registered",
        "data": "the filter query, the source or the file that it works on",
        "changed": "the settings that differ from the defaults",
        "gpu": "the numbers of the GPUs that it times on",
        "host": "the machine that it works, or has worked, on",
        "user": "who started it, by the name that they have on that machine",
        "started": "month, day and time",
        "tags": "your tags",
        "note": "your note, else how it ended",
    },
    "problems": _PROBLEM,
    "candidates": {
        "rank": "by measured time, 1 is the fastest; where nothing is measured, by predicted time",
        "taken by": "who would take it, by the signs above the table",
        "candidate": "the kernel: its tile sizes, stages and warps, or the library's name",
        "time_us": _TIMED,
        "efficiency": f"the best time divided by this one; {_EFFICIENCY}",
        "predicted_us": "the time that the model predicts, in µs",
        "other_us": "the time that the second model predicts, in µs",
        "behind": "how much slower than the first it is predicted to be, in %",
        "roofline_us": "the least time that its arithmetic and its memory traffic allow, in µs",
        "space": "the search space that it is of: DEFAULT, which max-autotune tries, or EXHAUSTIVE",
        "spread_us": "the interquartile range of its measurements, in µs",
        "timings": "how often it was measured",
    },
    "failed candidates": {
        "taken by": "who would take it, by the signs above the table",
        "candidate": "the kernel: its tile sizes, stages and warps",
        "failures": "why it has no time",
        "space": "the search space that it is of",
        "timings": "how often it was tried",
    },
    "models": {
        "model": "its name and version",
        "hardware": "the GPU that it is made for",
        "status": "draft (not judged), validated, rejected, retired, or broken",
        "taken": "● it is what torch.compile takes on its GPU, and why",
        "efficiency": f"on held-out problems, a geometric mean; {_EFFICIENCY}",
        "efficiency_p10": "a tenth of the problems has an efficiency below this",
        "family": "the kind of model: trees, network, ensemble, distilled",
        "created": "the day",
        "aliases": "other names; default is what is taken",
        "tags": "your tags",
        "problems": "how many it was trained on",
        "timings": "how many it was trained on",
        "from": "the registry or package that it lies in",
        "note": "your note",
    },
    "choosers": {
        "chooser": "a model, the library, max-autotune, or another that chooses",
        "bar": "the geometric mean as a bar, from 0 to 1",
        "geomean": f"the geometric mean of its efficiencies; {_EFFICIENCY}",
        "p10": "a tenth of the problems has an efficiency below this",
        "worst": "its efficiency on the problem where it is worst",
        "within": "the share of problems within 5 % of the best, in %",
        "fifth": "the geometric mean where the best of its first five is taken",
        "speed": "max-autotune DEFAULT's time over its own, a geometric mean; above 1 it is faster",
        "timed": "kernels that it times at compile for one choice, on average",
        "problems": "how many problems it was judged on",
    },
    "groups": {
        "group": "problems with something in common; Enter lists their cases",
        "problems": "in this group",
        "ours": "A's geometric mean of efficiencies",
        "theirs": "B's",
        "difference": "A's minus B's",
        "better": "problems where A is faster by more than 1 %",
        "worse": "problems where B is faster by more than 1 %",
        "p10": "a tenth of A's efficiencies is below this",
        "their_p10": "a tenth of B's efficiencies is below this",
        "within": "A's share of problems within 5 % of the best, in %",
        "their_within": "B's",
    },
    "cases": {
        "problem": "operator and sizes M×N×K",
        "dtype": "the operands' type",
        "efficiency": f"A's: the best measured time divided by that of its choice; {_EFFICIENCY}",
        "other": "B's",
        "difference": "A's minus B's",
        "sure": "how probable A says it is that its choice is within 5 % of the best",
        "chosen": "A's choice",
        "chosen_us": "its measured time, in µs",
        "chosen_predicted_us": "the time that A predicts for it, in µs",
        "best": "the fastest that was measured",
        "best_us": "its measured time, in µs",
        "best_predicted_us": "the time that A predicts for it, in µs",
        "layout": "how the two operands lie in memory",
        "part": "of a cross-validation: which part it is of",
    },
    "reports": {
        "run": "the number of the validation's run",
        "judged": "the model",
        "efficiency": f"its geometric mean; {_EFFICIENCY}",
        "problems": "how many problems it was judged on",
        "state": "of the run",
        "started": "month, day and time",
        "tags": "your tags",
        "note": "your note, else how it ended",
    },
    "facts": {"fact": "what is known of the runs; in brackets the difference to the first run"},
}


def meaning(what: str, column: str) -> str:
    """What a column of the table of these rows means, by its key; empty where there is nothing to
    say."""
    return _COLUMNS.get(what, {}).get(column, "")

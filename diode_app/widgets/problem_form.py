"""A problem in two lines: op, sizes, type, layouts, bias."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalGroup
from textual.message import Message
from textual.widgets import Input, Label, Select

from diode_engine.core.operators import OPERATORS, named
from diode_engine.core.problem import Bias, DType, Layout, Problem
from diode_engine.errors import RecordError

_SIZES = ("B", "M", "N", "K")
_TF32 = ("no", "yes")
_TYPES = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)  # those that models are trained on


class ProblemForm(VerticalGroup):
    """Posts `ProblemForm.Changed` when its problem has changed. What a problem has besides these
    fields (alignments, the output's type) is kept from `put` until a field is changed."""

    DEFAULT_CSS = """
    ProblemForm {
        height: auto;
        Horizontal { height: 1; }
        Label { padding: 0 1; color: $text-muted; }
        Input { width: 11; }
        #problem-B { width: 8; }
        Select { width: 14; }
        #problem-a, #problem-b { width: 9; }
        #problem-bias { width: 12; }
        #problem-tf32 { width: 8; }
        Input:disabled, Select:disabled { opacity: 40%; }
    }
    """

    class Changed(Message):
        """`problem` is None where the fields give no valid problem; `why` then says the reason."""

        def __init__(self, problem: Problem | None, why: str | None) -> None:
            super().__init__()
            self.problem = problem
            self.why = why

    def __init__(self, problem: Problem, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._given = problem

    def compose(self) -> ComposeResult:
        p = self._given
        with Horizontal():
            yield Label("op")
            yield _select("op", tuple(OPERATORS), p.op)
            for name in _SIZES:
                yield Label(name)
                yield Input(
                    str(getattr(p, name)), type="integer", compact=True, id=f"problem-{name}",
                    max_length=10, select_on_focus=True,
                )  # fmt: skip
        with Horizontal():
            yield Label("type")
            yield _select("dtype", _TYPES, p.dtype)
            yield Label("A")
            yield _select("a", tuple(Layout), p.a.layout)
            yield Label("B")
            yield _select("b", tuple(Layout), p.b.layout)
            yield Label("bias")
            yield _select("bias", tuple(Bias), p.bias)
            yield Label("TF32")
            # Not a box to tick: whether one is ticked is told by a colour alone.
            yield _select("tf32", _TF32, _TF32[p.allow_tf32])

    def on_mount(self) -> None:
        self._open()

    def focus_sizes(self) -> None:
        self.query_one("#problem-M", Input).focus()

    def put(self, problem: Problem) -> None:
        """Shows this problem."""
        self._given = problem
        with self.prevent(Input.Changed, Select.Changed):
            for name in _SIZES:
                self.query_one(f"#problem-{name}", Input).value = str(getattr(problem, name))
            dtype = self.query_one("#problem-dtype", Select)
            if problem.dtype not in _TYPES:  # it can be asked, and the answer is a sentence
                dtype.set_options([(str(t), str(t)) for t in (*_TYPES, problem.dtype)])
            for name, value in (
                ("op", problem.op), ("dtype", problem.dtype), ("a", problem.a.layout),
                ("b", problem.b.layout), ("bias", problem.bias),
                ("tf32", _TF32[problem.allow_tf32]),
            ):  # fmt: skip
                self.query_one(f"#problem-{name}", Select).value = str(value)
        self._open()
        self.post_message(self.Changed(problem, None))

    def problem(self) -> Problem:
        """The problem. Raises RecordError where the fields give none."""
        sizes = {}
        for name in _SIZES:
            text = self.query_one(f"#problem-{name}", Input).value
            try:
                sizes[name] = int(text)
            except ValueError:
                raise RecordError(f"{name} must be a whole number from 1 up.") from None
        op = named(self._chosen("op"))
        bias = Bias(self._chosen("bias"))
        made = Problem.make(
            op, sizes["M"], sizes["N"], sizes["K"], self._chosen("dtype"),
            B=sizes["B"],
            a_layout=self._chosen("a"),
            b_layout=self._chosen("b"),
            allow_tf32=self._chosen("tf32") == _TF32[True],
            # One that the op cannot have stays from another op: the usual one is meant.
            bias=bias if bias in op.biases else None,
        )  # fmt: skip
        given = self._given
        same = Problem.make(
            given.op, given.M, given.N, given.K, given.dtype, B=given.B,
            a_layout=given.a.layout, b_layout=given.b.layout, allow_tf32=given.allow_tf32,
            bias=given.bias,
        )  # fmt: skip
        return given if made == same else made

    def _chosen(self, name: str) -> str:
        return str(self.query_one(f"#problem-{name}", Select).value)

    def _open(self) -> None:
        """Enables the fields that the op and the type have."""
        op = named(self._chosen("op"))
        batch = self.query_one("#problem-B", Input)
        batch.disabled = not op.batched
        bias = self.query_one("#problem-bias", Select)
        bias.disabled = len(op.biases) == 1
        tf32 = self.query_one("#problem-tf32", Select)
        tf32.disabled = self._chosen("dtype") != DType.FLOAT32
        with self.prevent(Input.Changed, Select.Changed):
            if not op.batched:
                batch.value = "1"
            if bias.value not in op.biases:
                bias.value = str(op.biases[0])

    def _changed(self) -> None:
        self._open()
        try:
            self.post_message(self.Changed(self.problem(), None))
        except RecordError as error:
            self.post_message(self.Changed(None, str(error)))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._changed()

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        self._changed()


def _select(name: str, choices: tuple[str, ...], value: str) -> Select[str]:
    return Select(
        [(str(choice), str(choice)) for choice in choices],
        value=str(value), allow_blank=False, compact=True, id=f"problem-{name}",
    )  # fmt: skip

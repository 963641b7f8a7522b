"""A problem in two lines: op, sizes, type, layouts, bias; a third one has what only the op has."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalGroup
from textual.message import Message
from textual.widgets import Input, Label, Select

from diode_app.widgets.styling import COMPACT
from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.core.operators import OPERATORS, Operator, named
from diode_engine.core.operators.specification import Attribute
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError

_SIZES = ("B", "M", "N", "K")
_TF32 = ("no", "yes")
_TYPES = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)  # of an op that has any


def _types(op: Operator, given: DType) -> tuple[DType, ...]:
    """Return the types that the form offers for the op, with the given one."""
    found = _TYPES if {*_TYPES} < {*op.dtypes} else op.dtypes
    return found if given in found or given not in op.dtypes else (*found, given)


class ProblemForm(VerticalGroup):
    """Posts `ProblemForm.Changed` when its problem has changed. What a problem has besides these
    fields (alignments, the output's type) is kept from `put` until a field is changed. The types,
    layouts and attributes that can be chosen are those of the op."""

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
        .problem-own Select { width: 18; }
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
                    str(getattr(p, name)), type="integer", compact=True, classes=COMPACT,
                    id=f"problem-{name}", max_length=10, select_on_focus=True,
                )  # fmt: skip
        with Horizontal():
            yield Label("type")
            yield _select("dtype", _types(p.op, p.dtype), p.dtype)
            yield Label("A")
            yield _select("a", tuple(Layout), p.a.layout)
            yield Label("B")
            yield _select("b", tuple(Layout), p.b.layout)
            yield Label("bias")
            yield _select("bias", tuple(Bias), p.bias)
            yield Label("TF32")
            # Not a checkbox, which shows by its colour alone whether it is ticked.
            yield _select("tf32", _TF32, _TF32[p.allow_tf32])
        for op in OPERATORS.values():
            if op.attributes:
                with Horizontal(id=f"problem-of-{op}", classes="problem-own"):
                    for attribute in op.attributes:
                        yield Label(attribute.name.replace("_", " "))
                        of = p if p.op == op else None
                        yield _own_select(op, attribute, of)

    def on_mount(self) -> None:
        self._open()

    def focus_sizes(self) -> None:
        self.query_one("#problem-M", Input).focus()

    def put(self, problem: Problem) -> None:
        """Show this problem."""
        self._given = problem
        with self.prevent(Input.Changed, Select.Changed):
            for name in _SIZES:
                self.query_one(f"#problem-{name}", Input).value = str(getattr(problem, name))
            dtype = self.query_one("#problem-dtype", Select)
            dtype.set_options([(str(t), str(t)) for t in _types(problem.op, problem.dtype)])
            for attribute in problem.op.attributes:
                select = self._of(problem.op, attribute)
                select.value = str(problem.op_fields[attribute.name])
            for name, value in (
                ("op", problem.op), ("dtype", problem.dtype), ("a", problem.a.layout),
                ("b", problem.b.layout), ("bias", problem.bias),
                ("tf32", _TF32[problem.allow_tf32]),
            ):  # fmt: skip
                self.query_one(f"#problem-{name}", Select).value = str(value)
        self._open()
        self.post_message(self.Changed(problem, None))

    def problem(self) -> Problem:
        """Return the problem. Raises RecordError where the fields give none."""
        sizes = {}
        for name in _SIZES:
            text = self.query_one(f"#problem-{name}", Input).value
            try:
                sizes[name] = int(text)
            except ValueError:
                raise RecordError(f"{name} must be a whole number from 1 up.") from None
        op = named(self._chosen("op"))
        bias = Bias(self._chosen("bias"))
        attributes: dict[str, Any] = {
            attribute.name: next(
                v for v in attribute.values if str(v) == self._of(op, attribute).value
            )
            for attribute in op.attributes
        }
        made = Problem.make(
            op, sizes["M"], sizes["N"], sizes["K"], self._chosen("dtype"),
            B=sizes["B"],
            a_layout=self._chosen("a"),
            b_layout=self._chosen("b"),
            allow_tf32=self._chosen("tf32") == _TF32[True],
            # A bias that this op cannot have is left from another op; then the usual one counts.
            bias=bias if bias in op.biases else None,
            **attributes,
        )  # fmt: skip
        given = self._given
        same = Problem.make(
            given.op, given.M, given.N, given.K, given.dtype, B=given.B,
            a_layout=given.a.layout, b_layout=given.b.layout, allow_tf32=given.allow_tf32,
            bias=given.bias,
            **{each.name: given.op_fields[each.name] for each in given.op.attributes},
        )  # fmt: skip
        return given if made == same else made

    def _chosen(self, name: str) -> str:
        return str(self.query_one(f"#problem-{name}", Select).value)

    def _of(self, op: Operator, attribute: Attribute) -> Select[str]:
        return self.query_one(f"#problem-{op}-{attribute.name}", Select)

    def _open(self) -> None:
        """Enable the fields that the op and the type have."""
        op = named(self._chosen("op"))
        for line in self.query(".problem-own"):
            line.display = line.id == f"problem-of-{op}"
        dtype = self.query_one("#problem-dtype", Select)
        a, b = self.query_one("#problem-a", Select), self.query_one("#problem-b", Select)
        a.disabled = b.disabled = len(op.layouts) == 1
        with self.prevent(Input.Changed, Select.Changed):
            before = DType(self._chosen("dtype"))
            types = _types(op, before)
            dtype.set_options([(str(each), str(each)) for each in types])
            dtype.value = str(before if before in types else types[0])
            if (Layout(self._chosen("a")), Layout(self._chosen("b"))) not in op.layouts:
                a.value, b.value = map(str, op.layouts[0])
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
        value=str(value), allow_blank=False, compact=True, classes=COMPACT,
        id=f"problem-{name}",
    )  # fmt: skip


def _own_select(op: Operator, attribute: Attribute, problem: Problem | None) -> Select[str]:
    value = attribute.usual if problem is None else problem.op_fields[attribute.name]
    return _select(f"{op}-{attribute.name}", tuple(map(str, attribute.values)), str(value))

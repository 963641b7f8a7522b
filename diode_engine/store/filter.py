"""Filter queries such as ``op:mm dtype:bf16 m<=64 k%8!=0 -layout:row/col``, as conditions.

A query is a list of terms with spaces between them, all of which must hold: ``[-]field comparison
value``. A minus negates a term. The comparisons are ``:`` (or ``=``), ``!=``, ``<``, ``<=``, ``>``
and ``>=``, and for whole numbers ``%8=0`` and ``%8!=0``. After ``:`` and ``!=`` there may be
several values with commas between them, and a range ``64..512``, ends included. A value with spaces
or commas is put in double quotes. Case does not matter. A comparison with a value that is not known
(such as the best time of a problem on which every candidate failed) is false.

Nothing of a query becomes SQL text: each term is made an SQLAlchemy condition by its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import sqlalchemy as sa

from diode_engine.errors import QueryError

Condition = sa.ColumnElement[bool]

# Comparisons in a query, as they are passed to fields.
_SIGNS = {":": "=", "==": "=", "=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

_WORD = re.compile(r'(?:"[^"]*"|[^\s"])+')
_TERM = re.compile(r"(-?)([A-Za-z]\w*)(%[^:=!<>]*)?(!=|==|<=|>=|:|=|<|>)")
_VALUE = re.compile(r'("[^"]*"|[^,"])*')
_RANGE = re.compile(r"(.+?)\.\.(.+)")


class BadValue(Exception):
    """A field cannot have a value. The text says why, as the end of a sentence that begins with the
    value."""


@dataclass(frozen=True)
class QueryField:
    """A field that a query can name. `help` is one line for people; `choices` are its values where
    they can be listed."""

    help: str
    # (comparison, value): the condition that the field compares so with the value, or BadValue.
    # None: the field has no column; the code that reads the rows computes its value and compares it
    # with the `choices` (see Filter.computed).
    condition: Callable[[str, str], Condition] | None
    choices: tuple[str, ...] = ()
    ordered: bool = False  # has all comparisons of _SIGNS; else it can be equal or not
    # (divisor, value): the condition that the field leaves the remainder `value`, or BadValue.
    remainder: Callable[[int, str], Condition] | None = None


@dataclass(frozen=True)
class Filter:
    """A parsed query. `computed` has, for each field in it without a column, the choices that the
    query accepts."""

    conditions: tuple[Condition, ...] = ()
    computed: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Completion:
    """What could replace the characters from `start` to `end` of a query."""

    start: int
    end: int
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Language:
    """The fields, by name, that queries on one table can name."""

    fields: Mapping[str, QueryField]

    def parse(self, text: str) -> Filter:
        """The parsed query. Raises QueryError, which says where the mistake is and what could be
        there."""
        conditions: list[Condition] = []
        computed: dict[str, frozenset[str]] = {}
        for start, word in _words(text):
            term = self._term(start, word)
            known = self.fields[term.name]
            if known.condition is None:
                allowed = _allowed_choices(term, known)
                computed[term.name] = computed.get(term.name, allowed) & allowed
            else:
                conditions.append(_condition(term, known, known.condition))
        return Filter(tuple(conditions), computed)

    def suggest(
        self, text: str, cursor: int, values: Mapping[str, Sequence[str]] | None = None
    ) -> Completion:
        """What could be written at the cursor, in the fields' order; no choices where nothing is
        known. `values` has the store's values for fields without choices of their own (see
        `run_query.known_values`)."""
        cursor = max(0, min(cursor, len(text)))
        start = next((i for i in range(cursor, 0, -1) if text[i - 1].isspace()), 0)
        word = text[start:cursor]
        begun = _TERM.match(word)
        if begun is None:
            start += word.startswith("-")
            typed = text[start:cursor].lower()
            known = self.fields.get(typed)
            if known is not None and known.ordered:
                signs = [":", "<=", ">=", "<", ">"]
                signs += ["%8=0", "%8!=0"] if known.remainder else []
                return Completion(start, cursor, tuple(typed + sign for sign in signs))
            names = [
                name if f.ordered else f"{name}:"
                for name, f in self.fields.items()
                if name.startswith(typed)
            ]
            return Completion(start, cursor, tuple(names))
        name = begun[2].lower()
        known = self.fields.get(name)
        start += begun.end() + word[begun.end() :].rfind(",") + 1
        if known is None or begun[3]:
            return Completion(start, cursor, ())
        typed = text[start:cursor].lower()
        choices = known.choices or (values or {}).get(name, ())
        return Completion(
            start, cursor, tuple(_quoted(c) for c in choices if c.lower().startswith(typed))
        )

    def _term(self, start: int, word: str) -> _Term:
        found = _TERM.match(word)
        if found is None:
            if word.lstrip("-").lower() in self.fields:
                sentence = f"{word} lacks a comparison and a value, as in {word}:…"
            else:
                sentence = f"{word} is not a term; a term is a field, a comparison and a value"
            self._refuse(sentence, start, start + len(word))
        name = found[2].lower()
        if name not in self.fields:
            where = start + found.start(2)
            self._refuse(f"There is no field {found[2]}", where, where + len(found[2]))
        given, at = word[found.end() :], start + found.end()
        values = []
        for value in _VALUE.finditer(given):
            if value.start() and given[value.start() - 1] != ",":
                continue  # the empty match before a comma
            values.append((at + value.start(), value[0].replace('"', "")))
        for empty in (at for at, value in values if not value):
            raise QueryError(
                f"{word} lacks a value{_at(empty)}{_allowed(name, self.fields[name])}.",
                start,
                empty,
            )
        divisor = None if found[3] is None else found[3][1:]
        return _Term(bool(found[1]), name, divisor, _SIGNS[found[4]], values, start, word)

    def _refuse(self, sentence: str, start: int, end: int) -> NoReturn:
        names = ", ".join(self.fields)
        raise QueryError(f"{sentence}{_at(start)}; the fields are {names}.", start, end)


@dataclass(frozen=True)
class _Term:
    negated: bool
    name: str
    divisor: str | None
    sign: str
    values: Sequence[tuple[int, str]]  # (where it begins, the value)
    start: int
    word: str

    def error(self, sentence: str) -> QueryError:
        end = self.start + len(self.word)
        return QueryError(f"{sentence}{_at(self.start)}.", self.start, end)

    def bad(self, value: str, at: int, why: str, known: QueryField) -> QueryError:
        rest = _allowed(self.name, known)
        return QueryError(f"{value} {why}{_at(at)}{rest}.", at, at + len(value))


def _words(text: str) -> Iterable[tuple[int, str]]:
    if text.count('"') % 2:
        at = text.rindex('"')
        raise QueryError(f'A quotation is not closed{_at(at)}; put a " at its end.', at, len(text))
    return ((word.start(), word[0]) for word in _WORD.finditer(text))


def _allowed_choices(term: _Term, known: QueryField) -> frozenset[str]:
    """The choices of a field without a column that a term accepts."""
    if term.sign not in ("=", "!=") or term.divisor is not None:
        raise term.error(f"{term.name} can be compared with : and != only")
    for at, value in term.values:
        if value.lower() not in known.choices:
            raise term.bad(value, at, f"is not a known {term.name}", known)
    chosen = frozenset(value.lower() for _, value in term.values)
    turned = term.negated != (term.sign == "!=")
    return frozenset(known.choices) - chosen if turned else chosen


def _condition(
    term: _Term, known: QueryField, compare: Callable[[str, str], Condition]
) -> Condition:
    sign, turned = term.sign, term.negated
    if sign == "!=":
        sign, turned = "=", not turned
    if sign != "=" and not known.ordered:
        raise term.error(f"{term.name} can be compared with : and != only")
    if sign != "=" and len(term.values) > 1:
        raise term.error(f"{sign} takes one value")
    divisor = None
    if term.divisor is not None:
        if known.remainder is None or sign != "=":
            raise term.error(f"{term.name} takes no %, which is for whole numbers, as in k%8=0")
        if not re.fullmatch("[1-9][0-9]{0,17}", term.divisor):
            raise term.error(f"{term.divisor or 'nothing'} cannot divide {term.name}")
        divisor = int(term.divisor)
    holds = []
    for at, value in term.values:
        try:
            ends = _RANGE.fullmatch(value) if known.ordered and sign == "=" else None
            if divisor is not None and known.remainder is not None:
                holds.append(known.remainder(divisor, value))
            elif ends is not None:
                holds.append(sa.and_(compare(">=", ends[1]), compare("<=", ends[2])))
            else:
                holds.append(compare(sign, value))
        except BadValue as error:
            raise term.bad(value, at, str(error) or f"is not a known {term.name}", known) from None
    condition = sa.or_(*holds)
    return sa.not_(condition) if turned else condition


def _at(position: int) -> str:
    return f" (character {position + 1})"


def _allowed(name: str, known: QueryField) -> str:
    if known.choices:
        return f"; {name} can be {', '.join(known.choices)}"
    return f"; {name} is {known.help}"


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"[\s,]", value) else value

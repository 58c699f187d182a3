"""Expressions of controls, evaluated over the seed by a whitelist of Python's syntax tree.

A control says by an expression which seed households or persons it counts, and how much of each.
Expressions come with data files, so nothing of Python is available to them but what is named in
`ALLOWED`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm.errors import TableError
from pemand_abm.settings import suggestion

ALLOWED = (
    "columns such as households.income or persons.age, numbers, texts, np.inf, "
    "the comparisons < <= == != >= >, + - * /, & | ~ between comparisons in parentheses, "
    ".isin([...]) and .between(low, high)"
)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LOGIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_WORDS: dict[type[ast.boolop], str] = {ast.And: "&", ast.Or: "|"}


def incidence(expression: str, tables: Mapping[str, pd.DataFrame], control: str = "") -> pd.Series:
    """Return how much each seed household adds to a control.

    Parameters
    ----------
    expression
        Over the columns of one table. A comparison counts 1 where it holds; a numeric expression
        counts its value, so `households.hhsize` controls persons.
    tables
        `households`, indexed by the seed's id, and `persons`, which holds that id as the column of
        the same name. What is found for persons is summed over each household.
    control
        The control's name, for the message of an error.

    Returns
    -------
    pandas.Series
        float64, finite, indexed as `households`.

    Raises
    ------
    TableError
        The expression is not in the whitelist, names what the seed lacks, or gives no finite number
        for some row.
    """
    households, persons = tables["households"], tables.get("persons")
    reading = _Reading(expression, tables)
    try:
        values = reading.evaluate()
    except _Refused as fault:
        raise TableError(_message(control, expression, str(fault))) from fault
    except (TypeError, ValueError, OverflowError, RecursionError, MemoryError) as fault:
        raise TableError(_message(control, expression, f"cannot be evaluated ({fault})")) from fault
    if reading.table == "persons" and persons is not None:
        by = persons[households.index.name]
        values = values.groupby(by.to_numpy()).sum().reindex(households.index, fill_value=0.0)
    return values.set_axis(households.index).rename(control or None)


def table_of(expression: str) -> str:
    """Return the table that an expression names first, or an empty text."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    names = (
        n.value.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    )
    return next((name for name in names if name != "np"), "")


class _Refused(Exception):
    """What is wrong with an expression."""


class _Reading:
    """Walks one expression's tree and keeps which table it names."""

    def __init__(self, expression: str, tables: Mapping[str, pd.DataFrame]) -> None:
        self.expression, self.tables, self.table = expression, tables, ""

    def evaluate(self) -> pd.Series:
        try:
            tree = ast.parse(self.expression.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
            raise _Refused("cannot be parsed") from fault
        values = self.value(tree.body)
        if not isinstance(values, pd.Series):
            raise _Refused("names no column of the seed")
        if not pd.api.types.is_numeric_dtype(values):
            raise _Refused("gives texts, not numbers; compare them with one")
        values = values.astype("float64")
        bad = values.index[~np.isfinite(values)]
        if len(bad):
            rows = f"{len(bad)} rows of {self.table}, first {bad[:3].tolist()}"
            raise _Refused(f"gives no finite number for {rows}")
        return values

    def value(self, node: ast.expr) -> Any:
        """Return a column, a number or a text; a node that has no branch here is refused."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return constant
            case ast.Attribute(value=ast.Name(id="np"), attr="inf"):
                return np.inf
            case ast.Attribute(value=ast.Name(id=table), attr=column):
                return self.column(table, column)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self.compare(ops, [self.value(n) for n in (left, *others)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self.number(left), self.number(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _LOGIC:
                return _LOGIC[type(op)](self.truth(left), self.truth(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return ~self.truth(operand)
            case ast.Call(
                func=ast.Attribute(value=of, attr="isin"),
                args=[ast.List() | ast.Tuple() as held],
                keywords=[],
            ):
                return self.series(of).isin([self.constant(n) for n in held.elts])
            case ast.Call(
                func=ast.Attribute(value=of, attr="between"), args=[low, high], keywords=[]
            ):
                return self.series(of).between(self.constant(low), self.constant(high))
            case ast.BoolOp(op=op):
                word = type(op).__name__.lower()
                raise _Refused(
                    f"uses `{word}`; write {_WORDS[type(op)]}, with each comparison in parentheses"
                )
            case ast.UnaryOp(op=ast.Not()):
                raise _Refused("uses `not`; write ~, with the comparison in parentheses")
            case _:
                raise _Refused(f"uses {_source(node)}, which is not allowed")

    def column(self, table: str, column: str) -> pd.Series:
        if table not in self.tables:
            raise _Refused(f"names {table!r}; the seed has {' and '.join(self.tables)}")
        if self.table and table != self.table:
            raise _Refused("names households and persons together; use the columns of one table")
        self.table, held = table, self.tables[table]
        if column in held:
            return held[column]
        if column == held.index.name:
            return held.index.to_series()
        near = suggestion(column, map(str, held.columns))
        raise _Refused(f"names {table}.{column}, a column that the seed lacks{near}")

    def compare(self, ops: list[ast.cmpop], values: list[Any]) -> Any:
        for op in ops:
            if type(op) not in _COMPARE:
                raise _Refused(f"uses {type(op).__name__}, which is not allowed")
        pairs = zip(ops, values, values[1:], strict=False)
        return reduce(operator.and_, (_COMPARE[type(op)](a, b) for op, a, b in pairs))

    def series(self, node: ast.expr) -> pd.Series:
        values = self.value(node)
        if not isinstance(values, pd.Series):
            raise _Refused(f"{_source(node)} is not a column")
        return values

    def number(self, node: ast.expr) -> Any:
        values = self.value(node)
        if isinstance(values, str) or (
            isinstance(values, pd.Series) and not pd.api.types.is_numeric_dtype(values)
        ):
            raise _Refused(f"computes with {_source(node)}, which holds texts")
        # A comparison counts 1 where it holds, so that (a == 1) + (b == 1) adds as it reads.
        return values.astype("float64") if isinstance(values, pd.Series) else float(values)

    def truth(self, node: ast.expr) -> pd.Series:
        values = self.series(node)
        if not pd.api.types.is_bool_dtype(values):
            # & binds tighter than a comparison: Python would read 1 & households.x.
            raise _Refused(f"joins {_source(node)} by & | ~; put each comparison in parentheses")
        return values

    def constant(self, node: ast.expr) -> Any:
        value = self.value(node)
        if isinstance(value, pd.Series):
            raise _Refused(f"uses {_source(node)} where a number or a text is due")
        return value


def _source(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"`{text[:60]}{'...' if len(text) > 60 else ''}`"


def _message(control: str, expression: str, said: str) -> str:
    who = f"control {control}: " if control else ""
    shown = expression if len(expression) <= 200 else expression[:200] + "..."
    return f"{who}expression {shown!r} {said}. Allowed are {ALLOWED}"

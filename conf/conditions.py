"""Checks the conditions of rules without Spark; Spark itself evaluates them (`transforms.expectations`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from silverfold.conf.names import caseless

_DIALECT = "spark"

_UNFIT = {
    "says something else from call to call": (
        "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id",
        "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
    ),
    "depends on when it is asked, and by whom": (
        "now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp", "current_timezone",
        "current_user", "user", "session_user", "current_catalog", "current_database", "current_schema", "version",
    ),
    "is not of one row": (
        "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    ),
    "runs a program": ("java_method", "reflect", "try_reflect"),
}  # fmt: skip
"""Spark functions refused in rules, by reason: with them silver would depend on how updates are split into cuts."""

_BARE = {name for name in _UNFIT["depends on when it is asked, and by whom"] if name not in {"now", "version"}}
"""Those functions that Spark also accepts without parentheses if the table has no such column."""

_TODAY = re.compile(r"\s*(now|today|tomorrow|yesterday)\b(\s|$)", re.IGNORECASE)
"""Strings that Spark converts to the current time where a time is expected, as in ``day < 'today'``."""


def check_condition(condition: str) -> str:
    """Return the condition if it can be evaluated row by row.

    Raises:
        ValueError: The condition cannot be parsed, or depends on more than the row: it is a query, an aggregate or a
            window, or calls a non-deterministic function.
    """
    try:
        tree = sqlglot.parse_one(condition, dialect=_DIALECT)
    except SqlglotError as error:
        raise ValueError(f"a condition in SQL: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise ValueError("a condition in SQL that is nested less deeply") from None
    if not isinstance(tree, exp.Condition) or tree.find(exp.AggFunc, exp.Subquery, exp.Query):
        raise ValueError("a condition on the columns of one row, without queries and aggregates")
    if tree.find(exp.Window):
        raise ValueError("a condition on the columns of one row, without windows")
    called = set(map(_name, tree.find_all(exp.Func)))
    for why, functions in _UNFIT.items():
        for function in called.intersection(functions):
            raise ValueError(f"a condition without {function}(), which {why}")
    for name in (column.this for column in tree.find_all(exp.Column) if not column.table):
        if name.name.lower() in _BARE and not name.quoted:
            raise ValueError(f"a condition without {name.name}: a column of that name goes in backticks")
    for text in map(_text, tree.find_all(exp.Literal, exp.RawString, exp.Concat, exp.DPipe)):
        if _TODAY.match(text):
            raise ValueError(
                f"a condition without '{text}', a time that depends on when it is asked: where it is a text, "
                f"RLIKE '^{text}$'"
            )
    return condition


def functions_for_columns(condition: str, columns: Iterable[str]) -> list[str]:
    """Return the names that Spark would resolve to a refused function, because rows have no such column.

    Args:
        columns: Columns of the rows to be checked.
    """
    names = {column.name.lower() for column in sqlglot.parse_one(condition, dialect=_DIALECT).find_all(exp.Column)}
    return sorted(names & _BARE - set(map(caseless, columns)))


def _text(part: exp.Expression) -> str:
    """Return the concatenated string literals of an expression, without anything else in it."""
    literals = (part,) if isinstance(part, exp.Literal | exp.RawString) else part.find_all(exp.Literal, exp.RawString)
    return "".join(literal.name for literal in literals if not literal.is_number)


def _name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_names()[0]).lower()

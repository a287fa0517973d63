"""Checks the conditions of rules without Spark; only Spark gives them their meaning (`transforms.expectations`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from conf.names import folded

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
"""Functions of Spark by which no row may be judged. Silver would depend on how its updates are split into cuts."""

_BARE = {name for name in _UNFIT["depends on when it is asked, and by whom"] if name not in {"now", "version"}}
"""Those of them that Spark also takes without parentheses, where the table has no such column."""

_TODAY = re.compile(r"\s*(now|today|tomorrow|yesterday)\b(\s|$)", re.IGNORECASE)
"""Texts that Spark takes for a time where one is wanted, as in ``day < 'today'``: that of the build."""


def check_condition(condition: str) -> str:
    """Return the condition, if it is one that can be judged row by row.

    Raises:
        ValueError: It cannot be read, or does not say the same of a row whenever it is asked: it is a query, an
            aggregate or a window, or calls a function that depends on more than the row.
    """
    try:
        tree = sqlglot.parse_one(condition, dialect=_DIALECT)
    except SqlglotError as error:
        raise ValueError(f"a condition in SQL: {str(error).splitlines()[0]}") from error
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
    """Return what a condition names in backticks that would be a function of Spark, for want of a column, unfit here.

    Args:
        columns: Those of the rows to be judged.
    """
    names = {column.name.lower() for column in sqlglot.parse_one(condition, dialect=_DIALECT).find_all(exp.Column)}
    return sorted(names & _BARE - set(map(folded, columns)))


def _text(part: exp.Expression) -> str:
    """Return the text that literals are put together to; of what is more than literals, some text."""
    literals = (part,) if isinstance(part, exp.Literal | exp.RawString) else part.find_all(exp.Literal, exp.RawString)
    return "".join(literal.name for literal in literals if not literal.is_number)


def _name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_names()[0]).lower()

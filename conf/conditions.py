"""Checks the conditions of rules without Spark; only Spark gives them their meaning (`transforms.expectations`)."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_DIALECT = "spark"


def check_condition(condition: str) -> str:
    """Return the condition, if it is one that can be judged row by row.

    Raises:
        ValueError: It cannot be read, or is a query or an aggregate.
    """
    try:
        tree = sqlglot.parse_one(condition, dialect=_DIALECT)
    except SqlglotError as error:
        raise ValueError(f"a condition in SQL: {str(error).splitlines()[0]}") from error
    if isinstance(tree, exp.Query | exp.Block | exp.Command) or tree.find(exp.AggFunc, exp.Subquery, exp.Query):
        raise ValueError("a condition on the columns of one row, without queries and aggregates")
    return condition

"""Reads conditions in Spark's SQL, as rules of tables state them, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_DIALECT = "spark"


def check_condition(condition: str) -> str:
    """Return the condition, if it is one that can be judged row by row.

    Raises:
        ValueError: It cannot be read, or is a query or an aggregate.
    """
    _parsed(condition)
    return condition


def respelled(condition: str, spell: Callable[[str], str]) -> str:
    """Return the condition with its columns spelt anew.

    Args:
        spell: Returns SQL for the value of a column, by its name as the condition has it.

    Raises:
        ValueError: As for `check_condition`.
    """

    def column(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *fields = node.parts
        value = sqlglot.parse_one(spell(first.name), dialect=_DIALECT)
        return exp.Dot.build([exp.paren(value), *fields]) if fields else value

    return _parsed(condition).transform(column).sql(dialect=_DIALECT)


def _parsed(condition: str) -> exp.Expr:
    try:
        tree = sqlglot.parse_one(condition, dialect=_DIALECT)
    except SqlglotError as error:
        raise ValueError(f"a condition in SQL: {str(error).splitlines()[0]}") from error
    if isinstance(tree, exp.Query | exp.Block | exp.Command) or tree.find(exp.AggFunc, exp.Subquery, exp.Query):
        raise ValueError("a condition on the columns of one row, without queries and aggregates")
    return tree

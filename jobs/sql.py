"""``silverfold sql``: a query over the silver tables, by table name.

Only queries are taken: silver tables are written by ``build`` alone.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer
from rich.console import Console
from rich.table import Table

from conf.errors import QueryFailed
from jobs.cli import main_of
from jobs.console import console_on
from jobs.context import invocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.views import Views


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class Answer(NamedTuple):
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """There were more rows than the limit."""


def sql(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A query in Spark SQL, such as: SELECT * FROM quotes")],
    output: Annotated[Format | None, typer.Option("--format", help="Default: table on a terminal, else csv.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 1000,
) -> None:
    """Run a query over the silver tables, by table name.

    A table of any feed is called by its name, or FEED__TABLE where several feeds have one of that name. SHOW VIEWS
    lists them, DESCRIBE TABLE shows columns.

    csv prints NULL as nothing and a nested value as JSON. json prints one object a line: decimals, dates and
    times as text, bytes as hex, and NaN and infinities as text, since JSON has none.

    Exit code 2 when the query is wrong or its table is not built yet.
    """
    settings = invocation(ctx).settings()
    from pipelines.places import Places  # noqa: PLC0415 - --help must not load what jobs run on
    from pipelines.spark import start_spark  # noqa: PLC0415 - as above
    from pipelines.views import register_views  # noqa: PLC0415 - as above

    with Console(stderr=True).status("starting Spark"):
        session = start_spark(settings, app="silverfold sql")
    tables = {feed: list(found.tables) for feed, found in settings.feeds.items()}
    views = register_views(session, Places(settings.warehouse, settings.storage()), tables)
    answer = ask(session, query, limit, views)
    write(answer, output or (Format.TABLE if sys.stdout.isatty() else Format.CSV), sys.stdout)
    if answer.more:
        print(f"silverfold: cut after {limit} rows; --limit N shows more", file=sys.stderr)


def ask(session: SparkSession, query: str, limit: int, views: Views) -> Answer:
    """Run a query and return its first rows. Runs Spark jobs.

    Raises:
        QueryFailed: The text is not a query, names what is not there, or fails while it runs.
    """
    with _one_line(views):
        frame = _frame(session, query.strip().rstrip(";"))
        found = frame.limit(limit + 1).toArrow()  # not collect: that turns timestamps into the machine's own zone
        columns = [column.to_pylist() for column in found.slice(0, limit).columns]
        return Answer(tuple(frame.columns), list(zip(*columns, strict=True)), found.num_rows > limit)


def write(answer: Answer, output: Format, out: TextIO) -> None:
    """Print the rows."""
    if output is Format.TABLE:
        _write_table(answer, out)
    elif output is Format.CSV:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(answer.columns)
        rows.writerows([_text(value, "") for value in row] for row in answer.rows)
    else:
        for row in answer.rows:
            print(json.dumps(dict(zip(answer.columns, map(plain, row), strict=True)), ensure_ascii=False), file=out)


def plain(value: Any) -> Any:
    """Return a value of Spark as one of JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def _write_table(answer: Answer, out: TextIO) -> None:
    table = Table(*answer.columns, header_style="bold")
    for row in answer.rows:
        table.add_row(*(_text(value, "NULL") for value in row))
    console = console_on(out)
    console.print(table, markup=False)
    console.print(f"{len(answer.rows)} rows" + (", and more" if answer.more else ""))


def _text(value: Any, null: str) -> str:
    if value is None:
        return null
    simple = plain(value)
    return json.dumps(simple, ensure_ascii=False) if isinstance(simple, dict | list | bool) else str(simple)


_QUERY = re.compile(r"(select|with|from|values|table)\b|\(", re.IGNORECASE)
_QUESTION = re.compile(r"(show|describe|desc|explain)\b", re.IGNORECASE)
_COMMENTS = re.compile(r"\s*(--[^\n]*(\n|$)|/\*.*?\*/)", re.DOTALL)


def _frame(session: SparkSession, query: str) -> DataFrame:
    """Return what the query yields. Nothing but a query can stand in brackets, whatever it begins with."""
    start = query
    while comment := _COMMENTS.match(start):
        start = start[comment.end() :]
    if _QUESTION.match(start.lstrip()):
        return session.sql(query)
    if _QUERY.match(start.lstrip()):
        return session.sql(f"SELECT * FROM (\n{query}\n)")
    raise QueryFailed(
        "only queries can be run here: SELECT, WITH, VALUES, SHOW, DESCRIBE, EXPLAIN", condition="NOT_A_QUERY"
    )


@contextmanager
def _one_line(views: Views) -> Iterator[None]:
    """Turn Spark's errors into one line, without the JVM's stack."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - --help must not load Spark

    try:
        yield
    except PySparkException as error:
        raise explained(error.getCondition(), error.getMessageParameters() or {}, str(error), views) from error


def explained(condition: str | None, parameters: dict[str, str], text: str, views: Views) -> QueryFailed:
    """Return the error to show for one of Spark's."""
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        missing = parameters.get("relationName", "").replace("`", "")
        why = views.why_missing(missing)
        if why is not None:
            return QueryFailed(why, condition=condition)
        known = ", ".join(sorted(views.built)) or "none is built yet"
        return QueryFailed(f"there is no table {missing}; tables: {known}", condition=condition)
    first = text.strip().splitlines()[0] if text.strip() else "no message"
    return QueryFailed(_LINE.sub(_line_before, first), condition=condition or "SPARK_ERROR")


_LINE = re.compile(r"\bline (\d+)(?=,? pos)")


def _line_before(found: re.Match[str]) -> str:
    """Count lines as the user wrote them: the query stands one line below its bracket."""
    return f"line {max(1, int(found[1]) - 1)}"


if __name__ == "__main__":
    main_of("sql")

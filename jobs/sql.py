"""``silverfold sql``: run a query over the silver tables, by table name.

Only queries are accepted: ``build`` alone writes silver tables.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer
from rich.console import Console
from rich.table import Table

from silverfold.conf.errors import ConfigError, QueryFailed
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import console_on
from silverfold.jobs.common.context import invocation
from silverfold.pipelines.places import places_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from silverfold.pipelines.reading.time_travel import AsOf
    from silverfold.pipelines.reading.views import Views


class Format(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class Answer(NamedTuple):
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """The query has more rows than the limit."""


def sql(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A query in Spark SQL, such as: SELECT * FROM quotes")],
    *,
    output: Annotated[Format | None, typer.Option("--format", help="Default: table on a terminal, else csv.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 1000,
    at: Annotated[
        str | None, typer.Option(metavar="POSITION|TIME", help="Read all tables as of then.", show_default=False)
    ] = None,
    feed: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this feed's tables.", show_default=False)
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Let the query run programs, and read files that are no table of a feed.")
    ] = False,
) -> None:
    """Run a query over the silver tables, by table name.

    A table of any feed is called by its name, or FEED__TABLE where several feeds have one of that name. SHOW VIEWS
    lists them, DESCRIBE TABLE shows columns. The versions of a table that keeps history are in TABLE__history: each
    stood from __START_AT up to, not including, __END_AT, which is NULL for those that stand. The rows that a table with
    rules keeps aside are in TABLE__aside, only as of now.

    csv prints NULL as nothing and a nested value as JSON. json prints one object a line: decimals, dates and
    times as text, bytes as hex, and NaN and infinities as text, since JSON has none.

    --at POSITION reads every table as it stood once it had applied the feed's frames up to that position; with several
    feeds --feed says whose. --at TIME (ISO 8601, UTC unless it says otherwise) picks the newest position that all
    tables had reached by then, so that they are consistent with each other, and says which.
    A table that has not got so far, or began later, is an error when the query names it. A table
    whose cuts do not end at the position is read as of the one before, and said to be. A history then has the versions
    that had begun by then; those that ended later stand, as they did.

    Exit code 2 when the query is wrong or its table is not built yet.
    """
    run = invocation(ctx)
    settings, then = run.settings(), None if at is None else moment_or_position(at, datetime.now(UTC))
    chosen, places = chosen_feeds(list(settings.feeds), feed, then), places_of(settings)
    opened = [run.feed(name, settings) for name in chosen] if then is not None or feed is not None else []
    from silverfold.pipelines.reading.tables import queryable_names  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.reading.time_travel import as_of  # noqa: PLC0415 - as above
    from silverfold.pipelines.reading.views import register_views  # noqa: PLC0415 - as above
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    read_as_of = [] if then is None else [as_of(places, *each, then) for each in opened]
    _print_notes(read_as_of, with_positions=isinstance(then, datetime))
    with Console(stderr=True).status("starting Spark"):
        session = start_spark(settings, app="silverfold sql")
    tables = {name: list(queryable_names(places, name, settings.feeds[name].tables)) for name in chosen}
    views = register_views(session, places, tables, read_as_of)
    session.conf.set(_READS_FILES, str(unsafe).lower())
    answer = ask(session, query, limit, views, unsafe=unsafe)
    write(answer, output or (Format.TABLE if sys.stdout.isatty() else Format.CSV), sys.stdout)
    if answer.more:
        print(f"silverfold: cut after {limit} rows; --limit N shows more", file=sys.stderr)


def moment_or_position(text: str, now: datetime) -> int | datetime:
    """Parse ``--at``: digits alone are a position, anything else is a time, in UTC unless it has a zone.

    Raises:
        ConfigError: The text is neither, or a time in the future.
    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _refused(text, "a position, or a time such as 2024-05-01T12:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > now:
        raise _refused(text, f"a time that has come: it is {now.isoformat(timespec='seconds')}")
    return moment


def chosen_feeds(configured: Sequence[str], feed: str | None, then: int | datetime | None) -> Sequence[str]:
    """Return the feeds whose tables can be queried. Raises ConfigError if a position could belong to several."""
    if feed is not None:
        return [feed]
    if isinstance(then, int) and len(configured) > 1:
        raise ConfigError(
            file="command line", key="--feed", found=None, allowed=f"{', '.join(configured)}: whose position it is"
        )
    return configured


def ask(session: SparkSession, query: str, limit: int, views: Views, *, unsafe: bool = False) -> Answer:
    """Run a query and return its first rows. Runs Spark jobs.

    Args:
        unsafe: Allow the query to run programs, as TRANSFORM … USING does.

    Raises:
        QueryFailed: The text is not a query, refers to something missing, would run a program, or fails while running.
    """
    with _one_line(views):
        frame = _frame(session, query.strip().rstrip(";"), unsafe=unsafe)
        # not collect(): it converts timestamps to the machine's time zone
        found = _readable(frame).limit(limit + 1).toArrow()
        columns = [column.to_pylist() for column in found.slice(0, limit).columns]
        return Answer(tuple(frame.columns), list(zip(*columns, strict=True)), found.num_rows > limit)


def _readable(frame: DataFrame) -> DataFrame:
    """Return the rows with columns that Arrow or Python cannot represent cast to strings by Spark."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - --help must not load Spark

    numbered = frame.toDF(*map(str, range(len(frame.columns))))  # a query may have two columns of the same name
    return numbered.select(
        *(
            F.col(field.name).cast("string") if _is_text(field.dataType) else F.col(field.name)
            for field in numbered.schema
        )
    )


def _is_text(kind: DataType) -> bool:
    from pyspark.sql import types as T  # noqa: PLC0415 - --help must not load Spark

    match kind:
        case T.StructType():
            return any(_is_text(field.dataType) for field in kind)
        case T.ArrayType():
            return _is_text(kind.elementType)
        case T.MapType():
            return _is_text(kind.keyType) or _is_text(kind.valueType)
    return isinstance(kind, T.AnsiIntervalType | T.CalendarIntervalType | T.VariantType)


def write(answer: Answer, output: Format, out: TextIO) -> None:
    """Print the rows."""
    if output is Format.TABLE:
        _write_table(answer, out)
    elif output is Format.CSV:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(answer.columns)
        rows.writerows([_text(value, "") for value in row] for row in answer.rows)
    else:
        _refuse_doubles(answer.columns)
        for row in answer.rows:
            cells = dict(zip(answer.columns, map(json_value, row), strict=True))
            print(json.dumps(cells, ensure_ascii=False), file=out)


def _refuse_doubles(columns: Sequence[str]) -> None:
    """Refuse duplicate column names, which a JSON object cannot have."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise QueryFailed(
            f"two columns are called {twice[0]}, and an object has one: name them AS …", condition="DUPLICATE_COLUMN"
        )


def json_value(value: Any) -> Any:
    """Return a Spark value as a JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): json_value(part) for name, part in value.items()}
    return [json_value(part) for part in value] if isinstance(value, list | tuple) else value


def _print_notes(as_of: Sequence[AsOf], *, with_positions: bool) -> None:
    """Print notes on each feed's tables and, if ``with_positions``, the position at which the feed is read."""
    for found in as_of:
        position = [f"feed {found.feed} as of position {found.position}"] if with_positions and found.versions else []
        for line in [*position, *found.notes]:
            print(f"silverfold: {line}", file=sys.stderr)


def _refused(text: str, allowed: str) -> ConfigError:
    return ConfigError(file="command line", key="--at", found=text, allowed=allowed)


def _write_table(answer: Answer, out: TextIO) -> None:
    table = Table(*answer.columns, header_style="bold")
    for row in answer.rows:
        table.add_row(*(_text(value, "NULL") for value in row))
    console = console_on(out)
    console.print(table, markup=False)
    console.print(counted(len(answer.rows), "row") + (", and more" if answer.more else ""))


def _text(value: Any, null: str) -> str:
    if value is None:
        return null
    simple = json_value(value)
    return json.dumps(simple, ensure_ascii=False) if isinstance(simple, dict | list | bool) else str(simple)


_READS_FILES = "spark.sql.runSQLOnFiles"
"""Session setting: a query may name files, as in ``csv.`/etc/passwd```."""

_PROGRAMS = {
    "org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation": "TRANSFORM",
    "org.apache.spark.sql.catalyst.expressions.CallMethodViaReflection": "reflect",
}
"""Classes in Spark's plan of a query that run programs, and their names in SQL."""

_QUERY = re.compile(r"(select|with|from|values|table)\b|\(", re.IGNORECASE)
_QUESTION = re.compile(r"(show|describe|desc|explain)\b", re.IGNORECASE)
_COMMENT = re.compile(r"\s+|--(\\\n|[^\r\n])*|(?P<bracketed>/\*)")
_BRACKET = re.compile(r"/\*|\*/")


def _frame(session: SparkSession, query: str, *, unsafe: bool) -> DataFrame:
    """Return the rows of the query. It is put into parentheses, where Spark accepts nothing but a query."""
    start = _without_comments(query)
    if _QUESTION.match(start):
        return session.sql(start)
    if _QUERY.match(start):
        found = session.sql(f"SELECT * FROM (\n{query}\n)")
        if not unsafe:
            _check(found)
        return found
    raise QueryFailed(
        "only queries can be run here: SELECT, WITH, VALUES, SHOW, DESCRIBE, EXPLAIN", condition="NOT_A_QUERY"
    )


def _without_comments(query: str) -> str:
    """Return a query without leading comments, by Spark's rules: block comments nest, a backslash joins lines."""
    at = 0
    while found := _COMMENT.match(query, at):
        at = found.end()
        depth = 1 if found["bracketed"] else 0
        while depth and (bracket := _BRACKET.search(query, at)):
            at, depth = bracket.end(), depth + (1 if bracket[0] == "/*" else -1)
    return query[at:]


def _check(found: DataFrame) -> None:
    """Refuse a query that would run a program. A Spark Connect server enforces its own restrictions."""
    from pyspark.sql import is_remote  # noqa: PLC0415 - --help must not load Spark

    if is_remote():
        return
    plan = found._jdf.queryExecution().analyzed().toJSON()
    for name in re.findall(r'"class":"([^"]+)"', plan):
        if name in _PROGRAMS:
            raise QueryFailed(f"{_PROGRAMS[name]} runs a program: --unsafe lets it", condition="UNSAFE_QUERY")


@contextmanager
def _one_line(views: Views) -> Iterator[None]:
    """Turn Spark's errors into one-line errors without the JVM's stack."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - --help must not load Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    from silverfold.transforms.spark_errors import was_interrupted  # noqa: PLC0415 - as above

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if isinstance(error, Py4JJavaError):  # from a task, if rows are fetched as Arrow
            raise query_error(*task_failure(str(error)), views) from error
        raise query_error(error.getCondition(), error.getMessageParameters() or {}, str(error), views) from error


def task_failure(text: str) -> tuple[str | None, dict[str, str], str]:
    """Extract Spark's condition, parameters and message from the JVM's text for a failed task."""
    found = _CONDITION.search(text)
    return (found[1], {}, found[0]) if found else (None, {}, text)


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] .*")


def query_error(condition: str | None, parameters: dict[str, str], text: str, views: Views) -> QueryFailed:
    """Return the error to show for an error of Spark's."""
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        missing = parameters.get("relationName", "").replace("`", "")
        return views.missing(missing)
    first = text.strip().splitlines()[0] if text.strip() else "no message"
    return QueryFailed(_LINE.sub(_line_before, first), condition=condition or "SPARK_ERROR")


_LINE = re.compile(r"\bline (\d+)(?=,? pos)")


def _line_before(found: re.Match[str]) -> str:
    """Return the line number in the user's query, which begins one line after our parenthesis."""
    return f"line {max(1, int(found[1]) - 1)}"


if __name__ == "__main__":
    main_of("sql")

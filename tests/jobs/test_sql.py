from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from silverfold.conf.errors import QueryFailed
from silverfold.jobs import cli
from silverfold.jobs.sql import Answer, Format, ask, query_error, write
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.tables import queryable_names
from silverfold.pipelines.reading.views import Views
from silverfold.pipelines.spark.session import own_session

README = Path(__file__).parents[2] / "README.md"
VIEWS = Views(
    built={"quotes": ("market", "quotes"), "market__quotes": ("market", "quotes")},
    not_built={"trades": ("market", "trades"), "market__trades": ("market", "trades")},
    shared={},
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = own_session(spark)
    session.sql(
        "CREATE OR REPLACE TEMP VIEW quotes AS SELECT * FROM VALUES ('AAPL', 1.5D), ('IBM', NULL) AS q(sym, bid)"
    )
    return session


def test_a_query_gives_its_rows(session: SparkSession):
    answer = ask(session, "SELECT sym, bid FROM quotes ORDER BY sym", 10, VIEWS)

    assert answer == Answer(("sym", "bid"), [("AAPL", 1.5), ("IBM", None)], more=False)


def test_histories_and_rows_kept_aside_are_queried_beside_their_tables(tmp_path: Path):
    rule = {"condition": "Qty > 0", "action": "quarantine"}
    tables = {"quotes": {"source": "Q", "stored_as_scd_type": 2}, "trades": {"source": "T", "expect": {"some": rule}}}

    places = Places(str(tmp_path))
    assert list(queryable_names(places, "market", tables)) == ["quotes", "quotes__history", "trades", "trades__aside"]
    write_deltalake(places.side_table("market", "quotes").url, pa.table({"n": [1]}))  # of a rule that is gone since
    assert list(queryable_names(places, "market", tables))[2] == "quotes__aside"


def test_rows_beyond_the_limit_are_cut_and_said_to_be(session: SparkSession):
    answer = ask(session, "SELECT id FROM range(3)", 2, VIEWS)

    assert (len(answer.rows), answer.more) == (2, True)


def test_exactly_the_limit_is_not_cut(session: SparkSession):
    assert ask(session, "SELECT id FROM range(3)", 3, VIEWS).more is False


def test_a_query_without_rows_has_columns(session: SparkSession):
    assert ask(session, "SELECT sym FROM quotes WHERE false", 5, VIEWS) == Answer(("sym",), [], more=False)


def test_columns_of_one_name_are_both_there(session: SparkSession):
    answer = ask(session, "SELECT a.id, b.id FROM range(1) a, range(7, 8) b", 5, VIEWS)

    assert answer == Answer(("id", "id"), [(0, 7)], more=False)


@pytest.mark.parametrize(
    "query",
    [
        "  WITH one AS (SELECT 1 AS n) SELECT n FROM one;",
        "(SELECT 1 AS n)",
        "-- a remark; with a semicolon\n/* and another */ SELECT 1 AS n -- the end",
        "VALUES (1)",
        "from quotes select 1 limit 1",
    ],
)
def test_whatever_a_query_begins_with_it_is_run(session: SparkSession, query: str):
    assert ask(session, query, 5, VIEWS).rows == [(1,)]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("interval '1' year", "INTERVAL '1' YEAR"),
        ("interval '26' hour", "INTERVAL '26' HOUR"),
        ("array(make_interval(1, 2))", "[1 years 2 months]"),
        ("map(1, struct(interval '2' month AS i))", "{1 -> {INTERVAL '2' MONTH}}"),
        ("""parse_json('{"a": 1}')""", '{"a":1}'),
        pytest.param(
            "time'10:00:00.5'",
            "10:00:00.500000",
            marks=pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark 4.0 has no such type"),
        ),
    ],
)
def test_values_that_python_has_none_for_are_shown_as_spark_says_them(session: SparkSession, value: str, shown: str):
    answer, out = ask(session, f"SELECT {value} AS v", 5, VIEWS), io.StringIO()

    write(answer, Format.JSON, out)

    assert json.loads(out.getvalue()) == {"v": shown}


def test_a_table_can_be_described(session: SparkSession):
    assert ask(session, "DESCRIBE quotes", 9, VIEWS).rows == [("sym", "string", None), ("bid", "double", None)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM quotes",
        "INSERT INTO quotes VALUES ('X', 1.0)",
        "WITH x AS (SELECT 'X', 1.0D) INSERT INTO quotes SELECT * FROM x",
        "FROM quotes INSERT INTO quotes SELECT *",
        "DROP VIEW quotes",
        "SELECT 1) ; DROP VIEW quotes; SELECT (1",
        "",
    ],
)
def test_nothing_but_a_query_is_run(session: SparkSession, statement: str):
    with pytest.raises(QueryFailed):
        ask(session, statement, 5, VIEWS)

    assert session.table("quotes").count() == 2


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT TRANSFORM(sym) USING 'cat' AS (x STRING) FROM quotes", "TRANSFORM runs a program"),
        ("SELECT 1 FROM (SELECT reflect('java.lang.System', 'exit', 0))", "reflect runs a program"),
        ("WITH a AS (SELECT java_method('java.lang.Math', 'abs', 1) AS n) SELECT n FROM a", "reflect runs a"),
        ("SELECT sym FROM quotes WHERE sym IN (SELECT reflect('java.lang.Math', 'abs', 1))", "reflect runs a"),
    ],
)
def test_no_program_is_run_unless_it_is_let(session: SparkSession, query: str, why: str):
    with pytest.raises(QueryFailed, match=why):
        ask(session, query, 5, VIEWS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT window.start, count(*) FROM (SELECT timestamp'2020-01-01' AS ts) GROUP BY window(ts, '5 minutes')",
        "WITH x(a) AS (VALUES (1)) TABLE x",
        "SELECT parse_json('1')::int AS n",
        "/* a /* b */ c */ SELECT 1",
        "-- one \\\nshow\nSELECT 1",
    ],
)
def test_what_only_spark_can_read_is_run(session: SparkSession, query: str):
    assert len(ask(session, query, 5, VIEWS).rows) == 1


@pytest.mark.parametrize(
    "start", ["/* /* */ show */ ", "-- x \\\nshow\n", "/*/**/*/", "/* show", "-- show \n /* \n -- */ "]
)
def test_no_comment_hides_what_is_run(session: SparkSession, start: str):
    with pytest.raises(QueryFailed):
        ask(session, f"{start}CREATE OR REPLACE TEMP VIEW hidden AS SELECT 1", 5, VIEWS)
    assert not session.catalog.tableExists("hidden")


def test_a_text_that_names_a_program_is_a_text(session: SparkSession):
    query = "SELECT 'TRANSFORM(a) USING reflect(1)' AS `reflect()`, sym AS reflect FROM quotes WHERE sym = 'IBM'"
    assert ask(session, query, 5, VIEWS).rows == [("TRANSFORM(a) USING reflect(1)", "IBM")]
    assert ask(session, "SELECT reflect('java.lang.Math', 'abs', -1) AS n", 5, VIEWS, unsafe=True).rows == [("1",)]


def test_a_syntax_error_is_one_line_that_counts_as_the_user_wrote(session: SparkSession):
    with pytest.raises(QueryFailed) as caught:
        ask(session, "SELECT sym\nFORM quotes WHERE", 5, VIEWS)

    assert caught.value.condition == "PARSE_SYNTAX_ERROR"
    assert str(caught.value).startswith("[PARSE_SYNTAX_ERROR]")
    assert "line 2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_column_is_one_line(session: SparkSession):
    with pytest.raises(QueryFailed, match=r"^\[UNRESOLVED_COLUMN.*`ask`") as caught:
        ask(session, "SELECT ask FROM quotes", 5, VIEWS)

    assert "\n" not in str(caught.value)


def test_an_error_while_the_query_runs_is_one_line(session: SparkSession):
    with pytest.raises(QueryFailed, match="DIVIDE_BY_ZERO") as caught:
        ask(session, "SELECT 1 / (id - id) FROM range(2)", 5, VIEWS)

    assert "\n" not in str(caught.value)


def test_a_table_not_built_yet_is_named(session: SparkSession):
    with pytest.raises(QueryFailed, match="table trades of feed market is not built yet: run `silverfold build market"):
        ask(session, "SELECT * FROM trades", 5, VIEWS)


def test_an_unknown_table_comes_with_the_tables_there_are():
    error = query_error("TABLE_OR_VIEW_NOT_FOUND", {"relationName": "`prices`"}, "…", VIEWS)

    assert str(error) == "there is no table prices; tables: market__quotes, quotes"


MIXED = Answer(
    ("name", "at", "day", "price", "size", "raw", "tags", "live"),
    [
        (
            'it\'s, "so"',
            datetime(2024, 5, 1, 12, 0, 0, 250000, tzinfo=UTC),
            date(2024, 5, 1),
            Decimal("1.50"),
            float("nan"),
            b"\x00\xff",
            [1, None],
            True,
        ),
        (None, None, None, None, None, None, None, None),
    ],
    more=False,
)


def test_csv_leaves_null_empty_and_writes_nested_values_as_json():
    out = io.StringIO()

    write(MIXED, Format.CSV, out)

    assert out.getvalue() == (
        "name,at,day,price,size,raw,tags,live\n"
        '"it\'s, ""so""",2024-05-01T12:00:00.250000+00:00,2024-05-01,1.50,nan,00ff,"[1, null]",true\n'
        ",,,,,,,\n"
    )


def test_json_is_one_object_a_line():
    out = io.StringIO()

    write(MIXED, Format.JSON, out)

    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "name": 'it\'s, "so"',
        "at": "2024-05-01T12:00:00.250000+00:00",
        "day": "2024-05-01",
        "price": "1.50",
        "size": "nan",
        "raw": "00ff",
        "tags": [1, None],
        "live": True,
    }
    assert set(second.values()) == {None}


def test_json_has_no_object_for_two_columns_of_one_name():
    with pytest.raises(QueryFailed, match="two columns are called id, and an object has one: name them AS …"):
        write(Answer(("id", "n", "id"), [(1, 2, 3)], more=False), Format.JSON, io.StringIO())


def test_a_table_shows_null_and_counts_its_rows():
    out = io.StringIO()

    write(Answer(("sym", "[bid]"), [("[red]AAPL", None)], more=True), Format.TABLE, out)

    printed = out.getvalue()
    assert "[red]AAPL" in printed
    assert "[bid]" in printed
    assert "NULL" in printed
    assert "1 row, and more" in printed


@pytest.fixture
def conf(tmp_path: Path, warehouse: Path) -> str:
    """A folder of settings with one feed, one of whose two tables is built."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{warehouse}"\n')
    (tmp_path / "feeds" / "market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n'
        '[tables.quotes]\nsource = "Quotes"\n[tables.trades]\nsource = "Trades"\n'
    )
    write_deltalake(f"{warehouse}/silver/market/quotes", pa.table({"sym": ["AAPL", "IBM"], "bid": [1.5, None]}))
    return str(tmp_path)


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    return left.value.code


def test_the_command_prints_rows_and_says_when_there_are_more(
    spark: SparkSession, conf: str, capsys: pytest.CaptureFixture[str]
):
    code = run("--conf", conf, "sql", "SELECT * FROM quotes ORDER BY sym", "--format", "json", "--limit", "1")

    assert code == 0
    out, err = capsys.readouterr()
    assert out == '{"sym": "AAPL", "bid": 1.5}\n'
    assert err == "silverfold: cut after 1 rows; --limit N shows more\n"


def test_the_command_prints_csv_where_no_terminal_is(
    spark: SparkSession, conf: str, capsys: pytest.CaptureFixture[str]
):
    assert run("--conf", conf, "sql", "SELECT sym FROM market__quotes WHERE bid IS NULL") == 0

    assert capsys.readouterr().out == "sym\nIBM\n"


def test_the_command_reads_no_files_that_are_no_table_unless_it_is_let(
    spark: SparkSession, conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "secret.csv").write_text("hidden\n")
    query = f"SELECT * FROM csv.`{tmp_path}/secret.csv`"

    assert run("--conf", conf, "sql", query) == 2
    assert "hidden" not in "".join(capsys.readouterr())
    assert run("--conf", conf, "sql", query, "--unsafe") == 0
    assert capsys.readouterr().out == "_c0\nhidden\n"


def test_the_command_ends_with_2_when_a_table_is_not_built(
    spark: SparkSession, conf: str, capsys: pytest.CaptureFixture[str]
):
    assert run("--conf", conf, "sql", "SELECT * FROM trades") == 2

    assert capsys.readouterr().err == (
        "silverfold: table trades of feed market is not built yet: run `silverfold build market --once`\n"
    )


def test_the_readmes_queries_by_delta_rs_give_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_deltalake("warehouse/silver/market/quotes", pa.table({"Sym": ["IBM"]}))
    queries = re.findall(r"^\| delta-rs.*? \| `(.+)` \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    names = {"DeltaTable": DeltaTable, "QueryBuilder": QueryBuilder}
    assert [pa.table(eval(query, names)).to_pylist() for query in queries] == [[{"Sym": "IBM"}]] * 2

"""Texts of requests are cut where SQLite would cut them, and commands told from SQL."""

from __future__ import annotations

import pytest

from silverfold.connectors.sqlitecloud.protocol.commands import Command, Parameters, UnknownCommand, parse_command
from silverfold.connectors.sqlitecloud.protocol.sql_splitter import first_word, split

TRIGGER = "CREATE TEMP TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; SELECT 'END;'; END"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ;; -- a; b\n /* c; */ ;", []),
        ("a;b ; c", ["a", "b", "c"]),
        ('SELECT \'x;y\' || "a;""b;" || `c;` || [d;] ; e', ['SELECT \'x;y\' || "a;""b;" || `c;` || [d;]', "e"]),
        ("SELECT 1 -- ; 2\n + 1; /* ; */ SELECT 3/2-1;", ["SELECT 1 -- ; 2\n + 1", "/* ; */ SELECT 3/2-1"]),
        (TRIGGER + "; SELECT 2", [TRIGGER, "SELECT 2"]),
        ("explain " + TRIGGER + ";", ["explain " + TRIGGER]),
        ("NOTIFY c 'it's; odd'", ["NOTIFY c 'it's", "odd'"]),
        ("SELECT 'open; end", ["SELECT 'open", "end"]),
        ("SELECT 1 /* open; end", ["SELECT 1 /* open; end"]),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_comments_and_triggers(text: str, expected: list[str]) -> None:
    assert list(split(text)) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select 1", "SELECT"),
        ("-- why\n/* x */ Values(1)", "VALUES"),
        ("(select 1)", ""),
        ("'text'", ""),
        ("-- nothing", ""),
    ],
)
def test_the_first_word_is_found_behind_comments(statement: str, expected: str) -> None:
    assert first_word(statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("PING", Command("PING", {})),
        ("use database a-b.sqlite", Command("USE DATABASE", {"database": "a-b.sqlite"})),
        ("LISTEN TABLE", Command("LISTEN", {"channel": "TABLE"})),
        ("Listen Table \"a b\" Database 'c''d'", Command("LISTEN TABLE DATABASE", {"table": "a b", "database": "c'd"})),
        ("LISTEN ?", Command("LISTEN", {"channel": "first"})),
        ("LISTEN '?'", Command("LISTEN", {"channel": "?"})),
        ("NOTIFY ? ?", Command("NOTIFY", {"channel": "first", "payload": "2"})),
        ("NOTIFY c, 'x y'", Command("NOTIFY", {"channel": "c", "payload": "x y"})),
        ("AUTH APIKEY a--b/c", Command("AUTH APIKEY", {"secret": "a--b/c"})),
        ("CREATE CHANNEL c IF NOT EXISTS", Command("CREATE CHANNEL IF NOT EXISTS", {"channel": "c"})),
        ("CREATE TABLE channel(x)", None),
        ("SELECT 'LISTEN c'", None),
    ],
)
def test_commands_are_told_from_sql_and_take_parameters(statement: str, expected: Command | None) -> None:
    assert parse_command(statement, Parameters(("first", 2))) == expected


@pytest.mark.parametrize("statement", ["NOTIFY c 'it's'", "LISTEN", "GET CLIENT", "'PING' now", "LISTEN ?"])
def test_what_begins_like_a_command_and_is_none_is_refused(statement: str) -> None:
    if statement.startswith("'"):
        assert parse_command(statement, Parameters(())) is None
    else:
        with pytest.raises(UnknownCommand):
            parse_command(statement, Parameters((1.5,)))


def test_a_command_in_the_wrong_form_is_answered_with_the_right_ones() -> None:
    with pytest.raises(UnknownCommand) as refused:
        parse_command("NOTIFY foo, 'x', 'y'", Parameters(()))

    known = "known are, without comments: NOTIFY channel; NOTIFY channel payload."
    assert str(refused.value) == f"Unable to find command NOTIFY foo, 'x', 'y'; {known}"


@pytest.mark.parametrize("statement", ["ENABLE PLUGIN p", "SLEEP 10", "CREATE ROLE r PRIVILEGE READ"])
def test_a_command_of_the_service_that_there_is_not_is_refused_by_its_name(statement: str) -> None:
    with pytest.raises(UnknownCommand, match=f"^Unable to find command {statement}; "):
        parse_command(statement, Parameters(()))


@pytest.mark.parametrize(
    "statement",
    [
        "AUTH USER  PASSWORD s3cret",
        "CREATE APIKEY s3cret",
        "CREATE USER u PASSWORD s3cret",
        "ENCRYPT DATABASE d KEY s3cret",
        "PAUTH s3cret",
        "SET PASSWORD 's3cret",
    ],
)
def test_the_refusal_of_a_command_repeats_no_secret_of_it(statement: str) -> None:
    with pytest.raises(UnknownCommand) as refused:
        parse_command(statement, Parameters(()))

    assert str(refused.value).startswith("Unable to find command ")
    assert "s3cret" not in str(refused.value)


def test_the_refusal_of_a_long_command_repeats_its_beginning() -> None:
    with pytest.raises(UnknownCommand) as refused:
        parse_command("NOTIFY a b " + "x" * 1000, Parameters(()))

    assert f"NOTIFY a b {'x' * 189}; known" in str(refused.value)

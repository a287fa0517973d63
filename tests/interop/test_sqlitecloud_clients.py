"""The official clients of SQLite Cloud work with our server, unmodified: SQL, results in every form, and pub/sub."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
import trustme

from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context
from tests.interop.sqlitecloud_clients import Missing, OfficialClient, javascript_client, python_client

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqlitecloud")]

OLD, NEW = Dialect(words=Vocabulary.OLD), Dialect(words=Vocabulary.NEW)
TEXTS = 7 * sum(range(500))


class Certificate(NamedTuple):
    context: ssl.SSLContext
    authority: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    authority, file = trustme.CA(), folder / "server.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    return Certificate(tls_context(file), folder / "authority.pem")


def fetched(fetch: Callable[[Path], OfficialClient], folder: Path) -> OfficialClient:
    try:
        return fetch(folder)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> OfficialClient:
    return fetched(python_client, tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> OfficialClient:
    return fetched(javascript_client, tmp_path_factory.mktemp("javascript"))


@contextmanager
def serving(folder: Path, dialect: Dialect, tls: ssl.SSLContext | None = None) -> Iterator[SqliteCloudServer]:
    file = folder / "shop.db"
    with apsw.Connection(str(file)) as connection:
        connection.execute("CREATE TABLE foo(id INTEGER PRIMARY KEY, col1 TEXT, col2 TEXT)")
    connection.close()
    with SqliteCloudServer.start({"shop.db": file}, tls=tls, options=ServerOptions(dialect=dialect)) as server:
        yield server


def expect(saw: Any, envelope: list[str], refused: str) -> None:
    assert saw["sql"] == {
        "rows": [[0, "it's; 0", None], [1, "it's; 1", None], [2, "it's; 2", None]],
        "chunked": [4000, [4000, "text 4000", 2000.0]],
        "whole": [40, [40, "text 40", 20.0]],
        "refused": refused,
    }
    assert saw["tables"] == {"ids": list(range(500)), "texts": TEXTS, "after_unlisten": 0, "envelope": envelope}
    assert saw["channels"] == {"payloads": ["x y", "still there"], "listed": True}


OLD_ENVELOPE = ["channel", "payload", "pk", "sender", "type"]
NEW_ENVELOPE = ["channel", "channel_type", "payload", "sender", "sqlite_pk_name"]


def test_the_python_client_works_over_tls(python: OfficialClient, certificate: Certificate, tmp_path: Path) -> None:
    with serving(tmp_path, OLD, certificate.context) as server:
        saw = python.run(f"sqlitecloud://u:p@127.0.0.1:{server.port}/shop.db?root_certificate={certificate.authority}")

    expect(saw, OLD_ENVELOPE, "no such column: nope")


def test_the_python_client_works_over_plain_tcp(python: OfficialClient, tmp_path: Path) -> None:
    with serving(tmp_path, NEW) as server:
        saw = python.run(f"sqlitecloud://u:p@127.0.0.1:{server.port}/shop.db?insecure=1")

    expect(saw, NEW_ENVELOPE, "no such column: nope")


def test_the_javascript_client_works_over_tls(
    javascript: OfficialClient, certificate: Certificate, tmp_path: Path
) -> None:
    with serving(tmp_path, NEW, certificate.context) as server:
        saw = javascript.run(f"sqlitecloud://u:p@localhost:{server.port}/shop.db")

    expect(saw, NEW_ENVELOPE, "no such column: nope")


@pytest.fixture(scope="module")
def saw(javascript: OfficialClient, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the JavaScript client got for all that cases.js sends, group by group, in one process."""
    with serving(tmp_path_factory.mktemp("cases"), NEW, certificate.context) as server:
        return javascript.run(f"sqlitecloud://u:p@localhost:{server.port}/shop.db", script="cases.js")


def refused(code: str, extended: str, offset: int, text: str) -> dict[str, Any]:
    return {"error": [code, extended, offset, text]}


def wrote(last_id: int, changes: int, total: int) -> dict[str, int]:
    return {"lastID": last_id, "changes": changes, "totalChanges": total, "finalized": 1}


def test_values_of_every_type_come_back_to_javascript(saw: Any) -> None:
    large, small = "9223372036854775807n", "-9223372036854775808n"

    assert saw["values"] == {
        "back": [[1, -2, 1.5, "è; '\"", "", None, {"hex": "00ff20"}, {"hex": ""}, None]],
        "types": [["integer", "integer", "real", "text", "text", "null", "blob", "blob", "null"]],
        "infinite": ["-Infinity"],
        "nan": refused("10002", "0", -1, "bad_number at byte 18: b'NaN' is not a number"),
        "no_integer": refused("10002", "0", -1, "bad_number at byte 18: b'1e+21' is not an integer of 64 bits"),
        "still_there": [[1]],
        "bigint": [[large, small, "7n"]],
        "mixed": [[large, small, 7]],
        "number": [[9223372036854776000, -9223372036854776000, 7]],  # as JavaScript writes 2^63
        "template": [["it's", 8]],
    }


def test_writes_batches_and_transactions_answer_javascript(saw: Any) -> None:
    assert saw["writes"] == {
        "made": wrote(0, 0, 0),
        "added": wrote(2, 2, 2),
        "run": wrote(3, 1, 3),
        "batch": wrote(3, 1, 5),
        "batch_bound": [["E"], ["B"]],
        "last_only": [[2, 3]],
        "returning": [[4, "R"]],
        "deleted": wrote(4, 1, 8),
        "nothing": None,
        "begun": wrote(5, 1, 9),
        "within": refused("19", "1299", -1, "NOT NULL constraint failed: people.name"),
        "rolled_back": [[3]],
        "committed": [[4]],
        "none_open": refused("1", "1", -1, "cannot commit - no transaction is active"),
    }


def test_prepared_statements_answer_javascript(saw: Any) -> None:
    assert saw["statements"] == {
        "all": [[["E"]], [["B"]], [["B"]]],
        "get": {"name": "B"},
        "none": [[], None],
        "each": [2, [1, 2]],
        "run": wrote(0, 1, 1),
        "key": "OK",
        "exec": None,
    }


def test_errors_have_the_codes_and_offsets_that_javascript_reads(saw: Any) -> None:
    errors = {text: answer["error"] for text, answer in saw["errors"].items() if isinstance(answer, dict)}
    unknown = {text: error for text, error in errors.items() if error[3].startswith("Unable to find command ")}

    assert {text: error for text, error in errors.items() if text not in unknown} == {
        "SELECT nope": ["1", "1", 7, "no such column: nope"],
        "SELECT 1; SELECT nope; SELECT 2": ["1", "1", 7, "no such column: nope"],
        "SELECT * FROM missing": ["1", "1", -1, "no such table: missing"],
        "BOGUS SQL MEISTER": ["1", "1", 0, 'near "BOGUS": syntax error'],
        "INSERT INTO people(name) VALUES (NULL)": ["19", "1299", -1, "NOT NULL constraint failed: people.name"],
        "INSERT INTO people(id, name) VALUES (1, 'again')": ["19", "1555", -1, "UNIQUE constraint failed: people.id"],
        "TEST ERROR": ["66666", "0", -1, "This is a test error message with a devil error code."],
        "TEST EXTERROR": [
            "66666",
            "333",
            -1,
            "This is a test error message with an extcode and a devil error code.",
        ],
        "USE DATABASE none.db": ["10001", "0", -1, "Database none.db not found."],
    }
    assert {(text, *error[:3]) for text, error in unknown.items()} == {
        ("SET BOGUS STATEMENT TO 1;", "10002", "0", -1),
        ("AUTH USER  PASSWORD s3cret", "10002", "0", -1),
        ("ENABLE PLUGIN p", "10002", "0", -1),
        ("LIST NODES", "10002", "0", -1),
    }
    assert "Unable to find command SET BOGUS STATEMENT TO 1;" in unknown["SET BOGUS STATEMENT TO 1;"][3]
    assert "s3cret" not in unknown["AUTH USER  PASSWORD s3cret"][3]
    assert (saw["errors"]["SELECT 1"], saw["errors"]["events"]) == (
        [[1]],
        ["open", 'near "BOGUS": syntax error', "close"],
    )


def test_rowsets_of_every_size_come_to_javascript(saw: Any) -> None:
    columns = saw["rowsets"].pop("metadata")["columns"]

    assert [tuple(column.values()) for column in columns] == [
        ("id", "INTEGER", "main", "people", "id", 0, 1, 1),
        ("more", None, None, None, None, 0, 0, 0),
        ("name", "TEXT", "main", "people", "name", 1, 0, 0),
    ]
    assert saw["rowsets"] == {
        "sliced": 40,
        "empty": [],
        "blobs": [100, True],
        "large": [True, True],
        "chunked": [[147, "REINDEX", "DESC", "PRIMARY"]] * 2,
        "many": [[4999]],
        "at_once": [[[number]] for number in range(20)],
        "names": ["42", "'hello'", "count"],
    }


def test_the_servers_own_commands_answer_javascript(saw: Any) -> None:
    unknown = saw["commands"].pop("TEST STRING NOT_EXISTS")["error"]

    assert unknown[3].startswith("Unable to find command TEST STRING NOT_EXISTS;")
    assert saw["commands"] == {
        "PING": "PONG",
        "TEST STRING COMPRESSED": "Hello World, this is a test string.",
        "TEST ARRAY0": [],
        "GET CLIENT KEY MAXROWS": "0",
        "SET CLIENT KEY ID TO 10": refused("10005", "0", -1, "Client key ID is read-only."),
        "REMOVE CLIENT KEY ID": "OK",
        "GET CLIENT KEY nope": refused("10001", "0", -1, "Client key nope not found."),
        "GET SQL nope": refused("10001", "0", -1, "Table nope not found."),
        "GET DATABASE NAME": "shop.db",
        "LIST DATABASES": [["shop.db"]],
        "CREATE DATABASE other.db; USE DATABASE other.db; GET DATABASE": "other.db",
        "UNUSE DATABASE; REMOVE DATABASE other.db": "OK",
        "REMOVE DATABASE other.db": refused("10001", "0", -1, "Database other.db does not exist."),
        "REMOVE DATABASE other.db IF EXISTS": "OK",
        "USE DATABASE :memory:; SELECT printf('%.*c', 3, 'x')": [["xxx"]],
        "CREATE CHANNEL here; LIST CHANNELS": [["here"]],
        'NOTIFY here "a message"': "OK",
        "UNLISTEN here": "OK",
        "REMOVE CHANNEL here; LIST CHANNELS": [],
        "array": ["Hello World", 123456, 3.1415, None, 10],
        "metadata": [
            "name",
            "data_type",
            "col_seq",
            "not_null",
            "primary_key",
            "auto_inc",
            "tablename",
            "affinity_type",
        ],
        "of_table": [
            ["id", "INTEGER", "BINARY", 0, 1, 1],
            ["name", "TEXT", "BINARY", 1, 0, 0],
            ["age", None, "BINARY", 0, 0, 0],
        ],
    }


def test_what_a_connection_string_asks_for_is_given_to_javascript(saw: Any) -> None:
    every = [["abcdef", {"hex": "0102"}], ["gh", None]]

    assert saw["options"] == {
        "zerotext=1": every,
        "noblob=1": [["abcdef", None], ["gh", None]],
        "maxdata=4": [[None, {"hex": "0102"}], ["gh", None]],
        "maxrows=1": every,
        "maxrowset=60": refused("10003", "0", -1, "RowSet too big to be sent (limit set to 60 bytes)."),
        "compression=0": every,
        "non_linearizable=1": every,
        "/made.db?create=1": [[1]],
        "/none.db": refused("10001", "0", -1, "Database none.db not found."),
        "/:memory:": [[1]],
        "": refused("10005", "0", -1, "No database is in use: USE DATABASE first."),
        "/shop.db?apikey=k": [[1]],
        "/shop.db?token=t": [[1]],
        "/shop.db?password_hashed=1": [[1]],
    }


def test_javascript_listens_to_channels_and_tables_until_it_unlistens(saw: Any) -> None:
    found = saw["pubsub"]
    name = "test-channel-4b1f0c1e-8a5e-4a0c-9a40-7d8c7f3b7b10"
    exists, missing = "because it already exists.", "because it does not exist."

    assert found["made"] == ["OK", refused("10005", "0", -1, f"Cannot create channel {name} {exists}"), "OK"]
    assert (found["listens"], found["listed"]) == (["OK", "OK"], [name, "people"])
    assert found["stops"] == ["OK", "OK", []]
    assert found["removed"] == ["OK", refused("10005", "0", -1, f"Cannot remove channel {name} {missing}")]
    assert (found["only"], found["connected"]) == ("OK", [True, False])
    assert found["main"]["error"][0] == "ERR_CONNECTION_NOT_ESTABLISHED"
    assert found["seen"] == [
        [None, name, "in a bottle", {"own": 1}],
        [None, "people", [{"sqlite_type": "UPDATE", "id": 1, "name": "Zoë"}], {"own": 2}],
        [None, "people", [{"sqlite_type": "UPDATE", "id": 1, "name": "told"}], {"own": 3}],
    ]

"""The vendor's own tests of its Python client, which run against the hosted service, run against our server."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context
from tests.interop.sqlitecloud_clients import Missing, python_tests

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqlitecloud")]

_PORT = 8860
"""Some of the tests name none."""

_LEFT_OUT = {
    "test_connection_without_credentials_and_apikey": "everybody is let in here, since others log in in each way",
    "test_json": "the text of TEST JSON is the vendor's own",
    "test_explicit_transaction_to_rollback": "looks for a title that another test committed, within the same second",
    "test_text_factory_with_bytes": "what type the service declares of an expression is not known; ours is empty",
    "test_text_factory_with_callable": "as above",
}


def _music(file: Path) -> None:
    """Make what the tests read: a database like Chinook, of made-up music but for the names that they ask for."""
    columns = ", ".join(f"c{n} TEXT" for n in range(7))
    others = "; ".join(f"CREATE TABLE other{n}(a, b, c, d)" for n in range(5))
    with sqlite3.connect(file) as made:
        made.executescript(f"""
            CREATE TABLE albums(AlbumId INTEGER PRIMARY KEY AUTOINCREMENT, Title NVARCHAR(160), ArtistId INTEGER);
            CREATE TABLE genres(GenreId INTEGER PRIMARY KEY AUTOINCREMENT, Name NVARCHAR(120));
            CREATE TABLE customers(CustomerId INTEGER PRIMARY KEY AUTOINCREMENT, FirstName, LastName, Email);
            CREATE TABLE tracks(TrackId INTEGER PRIMARY KEY AUTOINCREMENT, Name TEXT, {columns});
            {others};
        """)
        titles = ["For Those About To Rock We Salute You", *(f"Album {n}" for n in range(346))]
        made.executemany("INSERT INTO albums(Title, ArtistId) VALUES (?, 1)", [(each,) for each in titles])
        made.executemany("INSERT INTO genres(Name) VALUES (?)", [("Rock",), *((f"Genre {n}",) for n in range(24))])
        made.executemany("INSERT INTO customers(FirstName) VALUES (?)", [(str(n),) for n in range(59)])
        made.executemany("INSERT INTO tracks(Name) VALUES (?)", [(f"Track {n}",) for n in range(3503)])
    made.close()


def _contacts(file: Path) -> None:
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE contacts(id INTEGER PRIMARY KEY, first_name, last_name, email, phone)")
        made.execute("INSERT INTO contacts(first_name) VALUES ('John')")
    made.close()


def test_nothing_that_the_vendors_tests_send_is_refused(tmp_path: Path) -> None:
    try:
        tests = python_tests(tmp_path)
    except Missing as reason:
        pytest.skip(str(reason))
    assets = tests / "tests" / "assets"
    assets.mkdir()
    _music(assets / "chinook.sqlite")
    _contacts(assets / "test.db")
    _music(tmp_path / "chinook.sqlite")
    authority, pem = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(pem)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    environment = {
        "SQLITE_HOST": "localhost",
        "SQLITE_PORT": str(_PORT),
        "SQLITE_DB": "chinook.sqlite",
        "SQLITE_USER": "user",
        "SQLITE_PASSWORD": "any",
        "SQLITE_API_KEY": "any",
        "SQLITE_ACCESS_TOKEN": "any",
        "SQLITE_CONNECTION_STRING": "sqlitecloud://localhost",
        "SSL_CERT_FILE": str(tmp_path / "authority.pem"),
        "PYTHONPATH": str(tmp_path / "packages"),
    }
    needing_others = [f"--ignore=tests/integration/test_{name}.py" for name in ("pandas", "sqlalchemy")]
    chosen = ["-k", " and ".join(f"not {name}" for name in _LEFT_OUT), *needing_others]
    server_options = ServerOptions(dialect=Dialect(words=Vocabulary.OLD))
    files = {"chinook.sqlite": tmp_path / "chinook.sqlite"}
    with SqliteCloudServer.start(files, _PORT, tls=tls_context(pem), options=server_options):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--tb=line",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "tests",
                *chosen,
            ],
            cwd=tests,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert " passed" in done.stdout

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

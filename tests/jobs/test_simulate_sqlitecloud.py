"""The simulator of SQLite Cloud as a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import apsw
import pytest
import trustme

from tests.jobs.test_simulate import exits, line, port_of, running
from tests.support.sqlitecloud.peer import Peer

UNNAMEABLE = "'my shop.db' is not one word: no connection string can name it"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "my shop.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL)")
    connection.execute("INSERT INTO item VALUES(1, 'pen', 1.5), (2, 'ink', 4.0)")
    connection.close()
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_it_serves_a_users_file_keeps_it_changing_and_leaves_it_whole(shop: Path, number: signal.Signals) -> None:
    arguments = ("--port", "0", "--database", str(shop), "--changes-per-second", "200", "--dialect", "old")
    with running(*arguments, connector="sqlitecloud") as process:
        port = port_of(process)
        assert line(process) == UNNAMEABLE
        with Peer(port) as peer, peer.listen("USE DATABASE 'my shop.db'; LISTEN TABLE item;", port) as listener:
            received = listener.notifications(5)
            assert {each["type"] for each in received} == {"TABLE"}
            assert len(peer.ask("SELECT * FROM item")) > 0
            process.send_signal(number)
            assert process.wait(timeout=30) == 0
        assert process.stdout is not None
        assert "quiet after" in process.stdout.read()
    assert [path.name for path in shop.parent.iterdir()] == ["my shop.db"]
    with apsw.Connection(str(shop)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT * FROM item").fetchall() != [(1, "pen", 1.5), (2, "ink", 4.0)]


def test_it_may_leave_all_changes_to_clients_and_encrypt(shop: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    arguments = (
        "--port",
        "0",
        "--database",
        str(shop),
        "--changes-per-second",
        "0",
        "--certificate",
        str(certificate),
        "--key",
        str(key),
    )
    with running(*arguments, connector="sqlitecloud") as process:
        port_of(process)
        assert line(process) == UNNAMEABLE
        assert line(process) == "quiet after 0 changes"


def test_it_may_serve_several_databases_to_those_with_a_key_at_both_loopback_addresses(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "k3y")
    other = tmp_path / "other.db"
    other.write_bytes(shop.read_bytes())
    arguments = ["--port", "0", "--changes-per-second", "0", "--apikey-env", "SHOP_KEY"]
    for each in (shop, other):
        arguments += ["--database", str(each)]
    with running(*arguments, "--host", "127.0.0.1", "--host", "::1", connector="sqlitecloud") as process:
        announced = line(process)
        port = int(announced.rpartition(":")[2])
        assert announced == f"listening on 127.0.0.1:{port} and [::1]:{port}"
        assert [line(process) for _ in range(2)] == [
            UNNAMEABLE,
            f"sqlitecloud://127.0.0.1:{port}/other.db?insecure=1",
        ]
        for host in ("127.0.0.1", "::1"):
            with Peer(port, host=host) as peer:
                assert peer.ask("USE DATABASE other.db") == (10004, "Authentication required.")
                assert peer.ask("AUTH APIKEY k3y; USE DATABASE other.db; SELECT name FROM item") == [("pen",), ("ink",)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--user", "me"), "--user with --password-env, or --apikey-env alone"),
        (("--apikey-env", "NOT_SET"), "environment: NOT_SET: found nothing"),
        (("--database", "elsewhere/shop.txt"), "two files of one name"),
        (("--key", "key.pem"), "--key goes with --certificate"),
        (("--apikey-env", ""), "'' is no variable with a secret in it"),
        (("--apikey-env", "EMPTY"), "'EMPTY' is no variable with a secret in it"),
        (("--user", "me", "--password-env", ""), "'' is no variable with a secret in it"),
        (("--host", "127.0.0.1", "--host", "::1", "--host", "127.0.0.1"), "one host twice"),
    ],
)
def test_options_that_do_not_fit_together_are_told(
    options: tuple[str, ...], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("EMPTY", "")
    assert exits("sqlitecloud", "--port", "0", "--database", "shop.txt", *options) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("contents", "options", "complaint"),
    [
        (None, (), "shop.txt: database: found 'no such file'"),
        (
            b"no database at all, but long enough to look at" * 50,
            (),
            "shop.txt: database: found 'file is not a database'",
        ),
        (b"", ("--certificate", "/no/such.pem"), "/no/such.pem: certificate: found"),
        (b"", (), "shop.txt: database: found 'no table'"),
    ],
)
def test_what_cannot_be_served_is_told_with_exit_code_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    contents: bytes | None,
    options: tuple[str, ...],
    complaint: str,
) -> None:
    file = tmp_path / "shop.txt"
    if contents is not None:
        file.write_bytes(contents)

    found = exits("sqlitecloud", "--port", "0", "--database", str(file), *options)

    assert found == 2
    assert complaint in capsys.readouterr().err
    assert file.exists() == (contents is not None)
    assert not contents or file.read_bytes() == contents

"""A server over TLS, and how it spaces what it writes so that the official clients lose nothing."""

from __future__ import annotations

import json
import ssl
import time

import pytest
import trustme

from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context
from tests.connectors.sqlitecloud.conftest import Serve
from tests.support.sqlitecloud.peer import Peer, writer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that trusts it."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    certificate = folder / "server.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return tls_context(certificate), client


def test_safe_pacing_over_tls_keeps_frames_in_records_of_their_own_and_these_short(
    serve: Serve, certificates: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    ours, theirs = certificates
    server = serve(tls=ours)
    with writer(server, theirs) as peer, peer.listen("LISTEN c", server.port, theirs) as listener:
        peer.ask(f"NOTIFY c 1; NOTIFY c 2; NOTIFY c '{'x' * 5_000}'")
        records = [listener.socket.recv(1 << 16) for _ in range(5)]

    assert [json.loads(record.partition(b" ")[2])["payload"] for record in records[:2]] == ["1", "2"]
    assert [len(record) for record in records[2:4]] == [2_048, 2_048]
    assert json.loads(b"".join(records[2:]).partition(b" ")[2])["payload"] == "x" * 5_000


def test_safe_pacing_on_plain_tcp_pauses_between_frames(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        begun = time.monotonic()
        peer.ask("NOTIFY c 1; NOTIFY c 2; NOTIFY c 3; NOTIFY c 4")
        listener.notifications(4)

    assert time.monotonic() - begun >= 3 * 0.02


@pytest.mark.parametrize("pacing", list(Pacing))
def test_over_tls_everything_is_the_same(
    serve: Serve, certificates: tuple[ssl.SSLContext, ssl.SSLContext], pacing: Pacing
) -> None:
    ours, theirs = certificates
    server = serve(ServerOptions(pacing=pacing), tls=ours)
    with writer(server, theirs) as peer, peer.listen("LISTEN TABLE foo", server.port, theirs) as listener:
        for number in range(50):
            peer.ask("INSERT INTO foo VALUES(?, ?, NULL)", number, "x" * 10 * number)
        assert [each["payload"][0]["id"] for each in listener.notifications(50)] == list(range(50))


def test_a_plain_client_of_an_encrypted_server_is_turned_away(
    serve: Serve, certificates: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with Peer(serve(tls=certificates[0]).port) as peer:
        peer.say("PING")
        assert b"PONG" not in peer.socket.recv(4096)

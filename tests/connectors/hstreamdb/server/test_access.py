"""Tokens, TLS and client certificates, ports that are taken; a cluster that cannot start leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, ServerTls
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.support.certificates import AUTHORITY
from tests.support.hstreamdb.peer import Peer, refusal
from tests.support.hstreamdb.vectors import vectors

(TOKEN,) = vectors("token")
Metadata = Sequence[tuple[str, str]] | None
GOOD: Metadata = [tuple(TOKEN["metadata"])]
BAD: Metadata = [("authorization", "Basic dXNlcjpiYWQ=")]


def pem(folder: Path, name: str, authority: trustme.CA) -> tuple[Path, Path]:
    """Write a certificate and its key; return their paths."""
    issued = authority.issue_cert(name)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return certificate, key


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    return ServerTls(*pem(tmp_path, "localhost", AUTHORITY))


def trusted(*pair: bytes) -> Any:
    key, chain = pair or (None, None)
    return grpc.ssl_channel_credentials(AUTHORITY.cert_pem.bytes(), private_key=key, certificate_chain=chain)


def echo(options: ClusterOptions, credentials: Any = None, metadata: Metadata = None) -> str:
    with HStreamServer.start(options) as cluster, Peer(cluster, credentials, metadata) as peer:
        return str(peer.call(m.ECHO, m.EchoRequest(msg="in")).msg)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, ("UNAUTHENTICATED", None, "No auth metadata found", None)),
        (BAD, ("UNAUTHENTICATED", None, "Invalid token: Basic dXNlcjpiYWQ=", None)),
    ],
)
def test_a_token_that_is_wrong_is_refused_on_tls(tls: ServerTls, metadata: Metadata, expected: Any) -> None:
    options = ClusterOptions(nodes=1, tls=tls, tokens=[TOKEN["token"]])
    assert refusal(lambda: echo(options, trusted(), metadata)) == expected


@pytest.mark.parametrize("metadata", [None, BAD])
def test_a_token_that_is_wrong_cancels_the_call_without_tls(metadata: Metadata) -> None:
    options = ClusterOptions(nodes=1, tokens=[TOKEN["token"]])
    assert refusal(lambda: echo(options, None, metadata)) == ("CANCELLED", None, "", None)


def test_one_of_the_tokens_lets_in(tls: ServerTls) -> None:
    tokens = ["b3RoZXI6b3RoZXI=", TOKEN["token"]]
    assert echo(ClusterOptions(nodes=1, tokens=tokens), None, GOOD) == "in"
    assert echo(ClusterOptions(nodes=1, tls=tls, tokens=tokens), trusted(), GOOD) == "in"


def test_a_fetch_needs_the_token_too() -> None:
    options = ClusterOptions(nodes=1, tokens=[TOKEN["token"]])
    with HStreamServer.start(options) as cluster, Peer(cluster) as peer, peer.fetch() as fetch:
        assert (fetch.status.grpc_code, fetch.status.text) == ("CANCELLED", "")


def test_an_address_with_tls_says_so(tls: ServerTls) -> None:
    with HStreamServer.start(ClusterOptions(nodes=2, tls=tls, advertised_host="localhost")) as cluster:
        first, second = cluster.ports
        assert cluster.address == f"hstreams://localhost:{first},localhost:{second}"


def test_an_authority_of_clients_lets_only_them_in(tmp_path: Path, tls: ServerTls) -> None:
    authority = tmp_path / "authority.pem"
    AUTHORITY.cert_pem.write_to_path(str(authority))
    mutual = ClusterOptions(nodes=1, tls=ServerTls(tls.certificate, tls.key, authority))
    certificate, key = pem(tmp_path, "client", AUTHORITY)
    assert echo(mutual, trusted(key.read_bytes(), certificate.read_bytes())) == "in"
    strangers, strangers_key = pem(tmp_path, "stranger", trustme.CA())
    for credentials in (trusted(), trusted(strangers_key.read_bytes(), strangers.read_bytes())):
        with HStreamServer.start(mutual) as cluster:
            channel = grpc.secure_channel(f"localhost:{cluster.ports[0]}", credentials)
            with channel, pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(m.ECHO.path)(b"", timeout=5)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_cannot_be_read_is_an_error_of_settings(tmp_path: Path) -> None:
    missing = ServerTls(tmp_path / "no.pem", tmp_path / "no.key")
    with pytest.raises(ConfigError, match=r"no\.pem.*PEM files: a certificate and its key"):
        HStreamServer.start(ClusterOptions(tls=missing))
    (tmp_path / "bad.pem").write_text("no certificate")
    bad = ServerTls(tmp_path / "bad.pem", tmp_path / "bad.pem")
    with pytest.raises(ConfigError, match="a certificate and its key"):
        HStreamServer.start(ClusterOptions(tls=bad))


def test_a_port_that_is_taken_is_an_error_and_nothing_is_left_behind() -> None:
    with HStreamServer.start(ClusterOptions(nodes=1)) as cluster:
        threads = threading.active_count()
        with pytest.raises(SourceUnavailable, match=f"cannot listen on 127.0.0.1:{cluster.ports[0]}"):
            HStreamServer.start(ClusterOptions(nodes=2, port=cluster.ports[0]))
        assert threading.active_count() == threads


def test_no_host_is_not_all_addresses() -> None:
    with pytest.raises(SourceUnavailable, match="of no host"):
        HStreamServer.start(ClusterOptions(host=""))


def test_nodes_have_the_ports_after_the_first() -> None:
    with HStreamServer.start(ClusterOptions(nodes=1)) as cluster:
        free = cluster.ports[0]
    with HStreamServer.start(ClusterOptions(nodes=1, port=free)) as cluster:
        assert list(cluster.ports) == [free]

"""TLS on each transport, verified unless switched off by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from silverfold.conf.errors import ConfigError, SourceUnavailable, UntrustedSource
from silverfold.connectors.tengi.transports.configuration import Tls
from tests.connectors.tengi.client.test_connection import echo
from tests.support.certificates import AUTHORITY, of_a_stranger, server_of, trusted_file
from tests.support.polling import until
from tests.support.tengi.pairs import TRANSPORTS, connected, port_of, run, serving

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


async def _ask(transport: str, served: Tls | None, used: Tls | None) -> Any:
    async with (
        serving(echo, tls=served, handshake_timeout=2.0) as server,
        connected(server, transport, tls=used) as connection,
    ):
        return (await connection.request("secret")).body


@each_transport
def test_a_trusted_certificate_is_enough(transport: str, tmp_path: Path) -> None:
    issued = AUTHORITY.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    served, used = Tls(certificate=tmp_path / "server.pem"), Tls(ca=trusted_file(tmp_path))
    assert run(_ask(transport, served, used)) == "secret"


def test_strangers_that_never_begin_the_handshake_of_tls_keep_nobody_out_and_are_logged_once() -> None:
    async def work() -> list[Any]:
        tls = Tls(context=of_a_stranger())
        async with serving(echo, "tcp", tls=tls, handshake_timeout=60.0, max_connections=1) as server:
            with capture_logs() as logged:
                opened = [await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(600)]
                async with connected(server, "tcp", tls=Tls(verify=False)) as connection:
                    assert (await connection.request(1)).body == 1
                assert await opened[0][0].read() == b""
                for _, writer in opened:
                    writer.transport.abort()
            return [each for each in logged if each["event"] == "clients_dropped"]

    (line,) = run(work())
    assert line["log_level"] == "warning"
    assert line["reason"] == "more than 256 sockets without a handshake: the oldest are closed"


@each_transport
def test_a_strangers_certificate_is_refused_unless_verification_is_off(transport: str) -> None:
    served = Tls(context=of_a_stranger())
    with pytest.raises(UntrustedSource):
        run(_ask(transport, served, Tls()))
    assert run(_ask(transport, served, Tls(verify=False))) == "secret"


def test_a_client_that_does_not_trust_a_server_is_named_in_its_log_with_the_likely_reason() -> None:
    async def refused() -> Any:
        async with serving(tls=Tls(context=of_a_stranger())) as server:
            with capture_logs() as logged:
                with pytest.raises(UntrustedSource):
                    async with connected(server, "tcp", tls=Tls()):
                        pass
                await until(lambda: logged, "its end", seconds=10)
            return logged[0]

    dropped = run(refused())
    assert dropped["client"].startswith("127.0.0.1:")
    assert dropped["reason"].endswith("it may not trust us")


@each_transport
def test_a_certificate_of_another_name_is_refused(transport: str, tmp_path: Path) -> None:
    with pytest.raises(UntrustedSource):
        run(_ask(transport, Tls(context=server_of("other.example")), Tls(ca=trusted_file(tmp_path))))


@each_transport
def test_plain_text_and_tls_do_not_meet(transport: str) -> None:
    with pytest.raises(SourceUnavailable, match="only one of the two uses TLS"):
        run(_ask(transport, Tls(context=server_of()), None))
    with pytest.raises(SourceUnavailable):
        run(_ask(transport, None, Tls(verify=False)))


def test_a_certificate_without_its_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"c\.pem: No private key in it, and no other file for it"):
        Tls(certificate=file).server_context()
    with pytest.raises(ConfigError, match=r"c\.pem: No private key in it$"):
        Tls(certificate=file, key=file).server_context()


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca: found .*nowhere\.pem"):
        Tls(ca=tmp_path / "nowhere.pem").client_context()
    with pytest.raises(ConfigError, match=r"certificate: found .*nowhere\.pem"):
        Tls(certificate=tmp_path / "nowhere.pem").server_context()
    with pytest.raises(ConfigError, match="a server's certificate"):
        Tls().server_context()

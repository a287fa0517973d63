"""A receiver that listens: what its files have as a source comes counts, not what they had as it began to listen."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import trustme

from silverfold.conf.errors import SilverfoldError, SourceUnavailable
from silverfold.conf.secrets import Secret
from silverfold.connectors.frames import Resume
from silverfold.connectors.tengi.client import Client, ConfigurationBuilder
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiFeed, TengiOptions
from tests.support.certificates import AUTHORITY, trusted_file
from tests.support.epochs import in_background
from tests.support.memory import MemorySink
from tests.support.polling import PAUSE, tries
from tests.support.tengi.landed import feed_of
from tests.support.tengi.receiving import free_port


def listening(port: int, certificate: Path, token: Path) -> TengiFeed:
    """Return a feed whose receiver listens, and has just begun to use its files."""
    AUTHORITY.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    options = TengiOptions(
        transport="tcp",
        mode="listen",
        tls=True,
        tls_certificate=str(certificate),
        handshake={"token": Secret(file=str(token))},
    )
    return replace(feed_of(f"tengi://127.0.0.1:{port}"), options=options)


async def admits(port: int, token: str, ca: str) -> bool:
    """Return whether the receiver lets a source in."""
    settings: Any = ConfigurationBuilder().add_transport("tcp", port=port).ssl(ca=ca).set(handshake={"token": token})
    async with Client.create(settings.build()) as source:
        try:
            await source.connect("127.0.0.1")
        except SilverfoldError:
            return False
    return True


async def until_it_listens(port: int) -> None:
    for _ in tries("the receiver to listen"):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(PAUSE)


def test_a_source_with_the_secret_and_the_certificate_of_now_is_let_in(tmp_path: Path) -> None:
    token, certificate, ca = tmp_path / "token", tmp_path / "server.pem", trusted_file(tmp_path)
    token.write_text("new-to")  # half of it

    async def run() -> None:
        port = free_port()
        receiver = CONNECTOR.receiver(listening(port, certificate, token))
        async with in_background(receiver.run(MemorySink(), Resume(1))) as running:
            await until_it_listens(port)
            refused = [await admits(port, "new-token", ca)]
            token.write_text("")
            refused += [await admits(port, given, ca) for given in ("", "new-to", "new-token")]
            assert refused == [False] * 4
            token.write_text("new-token\n")
            newer = trustme.CA()
            newer.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
            (tmp_path / "newer").mkdir()
            newer.cert_pem.write_to_path(str(tmp_path / "newer" / "ca.pem"))
            assert not running.done()
            assert [await admits(port, "new-to", str(tmp_path / "newer" / "ca.pem"))] == [False]
            assert await admits(port, "new-token", str(tmp_path / "newer" / "ca.pem"))
            with suppress(SourceUnavailable):
                await running

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_source_that_comes_again_while_a_new_certificate_is_half_written_is_shown_the_one_before(
    tmp_path: Path,
) -> None:
    token, certificate, ca = tmp_path / "token", tmp_path / "server.pem", trusted_file(tmp_path)
    token.write_text("token")

    async def run() -> None:
        port = free_port()
        receiver = CONNECTOR.receiver(listening(port, certificate, token))
        for epoch in (1, 2):
            async with in_background(receiver.run(MemorySink(), Resume(epoch))) as running:
                await until_it_listens(port)
                assert await admits(port, "token", ca)
                with suppress(SourceUnavailable):
                    await running
            certificate.write_text("-----BEGIN")

    asyncio.run(asyncio.wait_for(run(), 30))

"""A source that has let a receiver in and refuses it later: whoever renews a key or an authority may not be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trustme

from silverfold.conf.errors import SilverfoldError, SourceRefused, SourceUnavailable, StatementRefused, UntrustedSource
from silverfold.connectors.common.backoff import RenewedFiles
from silverfold.connectors.frames import Receiver, Resume
from silverfold.connectors.hstreamdb.receiver.receiver import HStreamReceiver
from silverfold.connectors.sqlitecloud.protocol.encode import encode_error
from silverfold.connectors.sqlitecloud.protocol.messages import ServerError
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiOptions
from silverfold.connectors.tengi.protocol.connection import ServerConnection
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.protocol.values import Identifier
from silverfold.connectors.tengi.receiver import receiver as tengi
from tests.support import peers
from tests.support.certificates import server_of, trusted_file
from tests.support.hstreamdb.receiving import feed
from tests.support.hstreamdb.scripted_node import refusing, scripted
from tests.support.memory import MemorySink
from tests.support.sqlitecloud.receiving import receiver_at
from tests.support.sqlitecloud.scsp_peer import Peer
from tests.support.sqlitecloud.scsp_peer import scripted as scripted_scsp
from tests.support.tengi.landed import feed_of

LOGIN, TRUST = SourceRefused(code="login", text="who is that?"), UntrustedSource(text="expired")
BUSY = encode_error(ServerError(5, 5, -1, "database is locked"))
GONE = encode_error(ServerError(10001, 0, -1, "Database shop.db not found."))
WRONG = encode_error(ServerError(10004, 0, -1, "wrong key"))


@pytest.mark.parametrize(
    ("error", "files", "is_retried"),
    [
        (LOGIN, {"login": True}, True),
        (LOGIN, {"trust": True}, False),
        (TRUST, {"trust": True}, True),
        (TRUST, {"login": True}, False),
        (SourceRefused(code="table", text="no such table"), {"login": True, "trust": True}, False),
    ],
)
def test_a_refusal_is_retried_once_the_source_let_us_in_with_a_file_that_makes_a_difference(
    error: SourceRefused, files: dict[str, bool], is_retried: bool
) -> None:
    renewed = RenewedFiles()

    def ending() -> Exception | None:
        try:
            with renewed.retrying_refusals(lambda found: found.code == "login"):
                raise error
        except SilverfoldError as ended:
            return ended

    assert ending() is error
    renewed.let_in(**files)
    later = ending()
    assert isinstance(later, SourceUnavailable) is is_retried
    assert str(error) in str(later)


async def ended(receiver: Receiver) -> SilverfoldError | None:
    """Run an epoch to its end; return its error."""
    try:
        await asyncio.wait_for(receiver.run(MemorySink(), Resume(1)), 30)
    except SilverfoldError as error:
        return error
    return None


async def check_retried(receiver: Receiver, new: Receiver, refuse: Callable[[], object]) -> None:
    """Check that a receiver which a source lets in tries again when it is refused, and that a new one does not."""
    first = await ended(receiver)
    assert not isinstance(first, SourceRefused)
    refuse()
    later, at_once = await ended(receiver), await ended(new)
    assert isinstance(at_once, SourceRefused)
    assert isinstance(later, SourceUnavailable)
    assert str(later).startswith(f"{str(at_once)[:20]}")
    assert str(later).endswith("(it let us in before, and may do so again)")


def test_tengi_tries_a_source_again_that_has_its_new_certificate_before_we_trust_it(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerConnection(Transport.TCP)
        while protocol.next_event() is None:
            protocol.receive(await reader.read(100))
        writer.write(protocol.accept(Identifier.random()))
        await writer.drain()

    async def run() -> None:
        served = server_of()
        async with peers.serving(serve, tls=served) as address:
            options = TengiOptions(transport="tcp", tls=True, tls_ca=trusted_file(tmp_path))
            shop = replace(feed_of(f"tengi://{address}"), options=options)
            stranger = trustme.CA().issue_cert("127.0.0.1")
            receivers = CONNECTOR.receiver(shop), CONNECTOR.receiver(shop)
            await check_retried(*receivers, lambda: stranger.configure_cert(served))

    asyncio.run(run())


def test_tengi_begins_anew_where_a_poll_meets_the_new_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise TRUST

    async def opened(*_: object) -> Any:
        return AsyncMock()

    monkeypatch.setattr(tengi, "open_first_link", opened)
    monkeypatch.setattr(tengi.TengiReceiver, "_serve", refused)
    options = TengiOptions(transport="http", tls=True, tls_ca=trusted_file(tmp_path))
    found = asyncio.run(ended(CONNECTOR.receiver(replace(feed_of(), options=options))))
    assert isinstance(found, SourceUnavailable)


def test_sqlitecloud_tries_again_with_a_key_of_a_file_and_no_other(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")

    async def run() -> None:
        answers: dict[str, Any] = {"GET CLIENT KEY UUID": BUSY}
        async with scripted_scsp(Peer(answers)) as address:
            by_file = address.replace("user:s3cret@", "")
            in_address = receiver_at(address)
            assert isinstance(await ended(in_address), SourceUnavailable)
            receivers = [receiver_at(by_file, apikey={"file": str(key)}) for _ in range(2)]
            await check_retried(*receivers, lambda: answers.update(AUTH=WRONG))
            assert isinstance(await ended(in_address), StatementRefused)

    asyncio.run(run())


def test_sqlitecloud_tries_a_database_again_that_is_gone_where_a_file_names_it_and_no_other(tmp_path: Path) -> None:
    key, connection = tmp_path / "key", tmp_path / "connection"
    key.write_text("s3cret\n")

    async def run() -> None:
        answers: dict[str, Any] = {"GET CLIENT KEY UUID": BUSY}
        async with scripted_scsp(Peer(answers)) as address:
            connection.write_text(address)
            in_address = receiver_at(address.replace("user:s3cret@", ""), apikey={"file": str(key)})
            assert isinstance(await ended(in_address), SourceUnavailable)
            by_file = [receiver_at("", connection={"file": str(connection)}) for _ in range(2)]
            await check_retried(*by_file, lambda: answers.update(AUTH=GONE))
            assert isinstance(await ended(in_address), StatementRefused)

    asyncio.run(run())


def test_sqlitecloud_tries_a_server_again_that_has_its_new_certificate_before_we_trust_it(tmp_path: Path) -> None:
    async def run() -> None:
        served = server_of()
        async with scripted_scsp(Peer({"GET CLIENT KEY UUID": BUSY}), tls=served) as address:
            receivers = [receiver_at(f"{address}&root_certificate={trusted_file(tmp_path)}") for _ in range(2)]
            stranger = trustme.CA().issue_cert("127.0.0.1")
            await check_retried(*receivers, lambda: stranger.configure_cert(served))

    asyncio.run(run())


def test_hstreamdb_tries_again_with_a_token_of_a_file_and_no_other(tmp_path: Path) -> None:
    token, wrong = tmp_path / "token", refusing("UNAUTHENTICATED", "Invalid token")
    token.write_text("dXNlcjpwYXNz\n")

    async def run() -> None:
        script = {"GetSubscription": refusing("ABORTED", "later")}
        async with scripted(script) as node:
            settings: dict[str, Any] = {"create": False, "token_without_tls": True}
            by_file, by_name = (
                feed(f"hstream://{node.target}", **settings, token=token)
                for token in ({"file": str(token)}, {"env": "TOKEN"})
            )
            by_environment = HStreamReceiver(by_name, {"TOKEN": "dXNlcjpwYXNz"})
            assert isinstance(await ended(by_environment), SourceUnavailable)
            receivers = [HStreamReceiver(by_file, {}) for _ in range(2)]
            await check_retried(*receivers, lambda: script.update(DescribeCluster=wrong))
            assert isinstance(await ended(by_environment), SourceRefused)

    asyncio.run(run())

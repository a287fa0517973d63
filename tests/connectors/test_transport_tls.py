"""A connection in TLS to a real peer on loopback: only what can be trusted is, and nothing that arrives is lost."""

import asyncio

import pytest

from silverfold.conf.errors import SourceUnavailable, UntrustedSource
from silverfold.connectors.common.transport import connect
from tests.support.certificates import expired, of_a_stranger, server_of, trusting
from tests.support.peers import connected, nobody, read_all, serving, silent


async def connected_to(serve, tls, **options):
    async with connected(serve, served=tls, tls=trusting(), **options) as connection:
        return await read_all(connection)


async def refused_by(serve, tls, **options):
    with pytest.raises(UntrustedSource) as raised:
        await connected_to(serve, tls, **options)
    assert raised.value.error_class == "UNTRUSTED_SOURCE"
    assert not raised.value.retryable
    return raised.value.text


def test_everything_a_peer_sends_in_tls_is_read_in_order_to_its_end():
    sent = bytes(range(256)) * 8_000

    async def serve(_reader, writer):
        writer.write(sent)

    assert asyncio.run(connected_to(serve, server_of())) == sent


def test_bytes_of_any_number_are_sent_to_a_peer_that_reads_them_late():
    async def serve(reader, writer):
        await asyncio.sleep(0.05)
        await reader.readexactly(3 << 20)
        writer.write(b"all of it")

    async def run(tls, trust):
        async with connected(serve, served=tls, tls=trust) as connection:
            await connection.send(bytes(3 << 20))
            return await connection.read()

    assert asyncio.run(run(server_of(), trusting())) == b"all of it"
    assert asyncio.run(run(None, None)) == b"all of it"


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (expired(), "expired"),
        (server_of("elsewhere.example"), "IP address mismatch"),
        (of_a_stranger(), "unable to get local issuer certificate"),
    ],
    ids=["expired", "of another host", "of an unknown authority"],
)
def test_a_certificate_that_is_not_to_be_trusted_is_refused_with_the_reason(tls, reason):
    assert reason in asyncio.run(refused_by(silent, tls))


def test_the_certificate_must_have_the_name_asked_for():
    named = server_of("db.example")

    async def serve(_reader, writer):
        writer.write(b"trusted")

    assert asyncio.run(connected_to(serve, named, server_name="db.example")) == b"trusted"
    assert "Hostname mismatch" in asyncio.run(refused_by(serve, named, server_name="other.example"))


def test_a_peer_that_does_not_speak_tls_is_an_unavailable_source():
    async def serve(_reader, writer):
        writer.write(b"+2 OK")

    with pytest.raises(SourceUnavailable, match="no TLS"):
        asyncio.run(connected_to(serve, None))


def test_a_peer_that_never_shakes_hands_is_given_up_in_time():
    async def run():
        async with serving(silent) as address:
            await connect(address, timeout=0.05, tls=trusting())

    with pytest.raises(SourceUnavailable, match=r"within 0\.05 s"):
        asyncio.run(run())


def test_nobody_listening_is_an_unavailable_source_in_tls_too():
    with nobody() as address, pytest.raises(SourceUnavailable, match=str(address.port)):
        asyncio.run(connect(address, timeout=10, tls=trusting()))


def test_the_end_of_a_connection_is_told_to_who_does_not_read():
    async def run(tls, trust):
        async with connected(at_once, served=tls, tls=trust) as connection:
            await asyncio.wait([connection.ended], timeout=10)
            return connection.ended.done(), connection.arrived()

    async def at_once(_reader, writer):
        writer.write(b"left")

    assert asyncio.run(run(server_of(), trusting())) == (True, b"left")
    assert asyncio.run(run(None, None)) == (True, b"left")

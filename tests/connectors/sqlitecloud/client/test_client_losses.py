"""The client when a server refuses, stops, breaks the protocol or goes: each has a name and ends both connections."""

import asyncio

import pytest

from silverfold.conf.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    SourceUnavailable,
    StatementRefused,
    UntrustedSource,
)
from silverfold.connectors.sqlitecloud.client.client import Client
from silverfold.connectors.sqlitecloud.protocol.encode import encode_error
from silverfold.connectors.sqlitecloud.protocol.messages import ServerError
from tests.support.certificates import expired, of_a_stranger, server_of, trusted_file
from tests.support.sqlitecloud.client import chunk, run, take, writing
from tests.support.sqlitecloud.scsp_peer import OK, SECRET, TICKET, UUID, Peer


def test_a_wrong_password_is_refused_and_not_repeated_in_the_error():
    peer = Peer({"AUTH": encode_error(ServerError(10004, 0, -1, "wrong: AUTH USER user PASSWORD s3cret;"))})

    async def use(db):
        return db

    with pytest.raises(StatementRefused) as raised:
        run(peer, use)
    assert raised.value.code == "10004"
    assert not raised.value.retryable
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [(expired, "expired"), (lambda: server_of("db.example"), "mismatch"), (of_a_stranger, "issuer")],
    ids=["expired", "of another host", "of a stranger"],
)
def test_nothing_is_sent_to_a_server_whose_certificate_is_not_to_be_trusted(certificate, reason, tmp_path):
    peer = Peer()

    async def use(db):
        return db

    with pytest.raises(UntrustedSource, match=reason):
        run(peer, use, tls=certificate(), query=f"&root_certificate={trusted_file(tmp_path)}")
    assert peer.commands == []


def test_any_certificate_will_do_when_it_is_not_to_be_verified():
    async def use(db):
        return await db.uuid()

    assert run(Peer(), use, tls=expired(), query="&no_verify_certificate=1") == UUID


def test_a_refused_pauth_ends_the_session():
    peer = Peer(pauth=encode_error(ServerError(10004, 0, -1, f"no session {SECRET}")))

    async def use(db):
        with pytest.raises(SourceUnavailable, match="was refused: 10004") as raised:
            await db.listen("c")
        with pytest.raises(SourceUnavailable, match="was refused: 10004"):
            await db.ping()
        return raised.value

    error = run(peer, use)
    assert SECRET not in str(error)


def test_an_error_behind_the_first_chunks_of_a_result_is_a_refusal_and_the_session_goes_on():
    refused = chunk(1, (1, "a")) + encode_error(ServerError(1, 0, -1, "integer overflow"))
    peer = Peer({"SELECT 1": refused, "SELECT 2": chunk(1, (2, "b")) + b"/6 0 0 0 "})

    async def use(db):
        rows = db.select("SELECT 1")
        assert await anext(rows) == (1, "a")
        with pytest.raises(StatementRefused, match="1: integer overflow"):
            await anext(rows)
        return [row async for row in db.select("SELECT 2")]

    assert run(peer, use) == [(2, "b")]


@pytest.mark.parametrize("ticket", [OK, b"|5 PAUTH", b"|79 PAUTX" + TICKET[9:], b"+2 NO"])
def test_no_second_connection_is_opened_without_a_ticket_that_is_one(ticket):
    peer = Peer({"LISTEN": ticket})

    async def use(db):
        with pytest.raises(RemoteProtocolError):
            await db.listen("c")

    run(peer, use)
    assert not any(command.startswith("PAUTH") for command in peer.commands)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"?5 hello", "bad_type"),
        (b"+99999999999 x", "too_large"),
        (b"%21 5 99 *0 0:1 1 1 \x40+1 a", "bad_compression"),
        (b"+5 hel", "truncated"),
        (chunk(1, (1, "a")) + chunk(3, (2, "b")), "chunk_order"),
        (b"@9 elsewhere", "reconnect"),
        (b"", "closed the main connection"),
    ],
)
def test_an_answer_that_is_none_ends_the_session_with_its_reason(answer, reason):
    async def and_close(writer):
        writer.write(answer)
        writer.close()

    async def use(db):
        with pytest.raises((RemoteProtocolError, SourceUnavailable), match=reason):
            await db.exec("SELECT")
        with pytest.raises((RemoteProtocolError, SourceUnavailable), match=reason):
            await db.ping()

    run(Peer({"SELECT": lambda statement: and_close}), use)


@pytest.mark.parametrize("unasked", [b"+5 extra", b"+5 ext"], ids=["a frame", "part of a frame"])
def test_what_comes_unasked_is_not_taken_for_the_answer_to_what_is_asked_next(unasked):
    peer = Peer({"first": OK + unasked})

    async def use(db):
        assert await db.exec("first") == "OK"
        with pytest.raises(RemoteProtocolError, match="nothing was asked"):
            await db.exec("second")

    run(peer, use)
    assert peer.commands[-1] == "first"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"frame_timeout": 0.1}, r"did not come to its end within 0\.1 s"),
        ({"timeout": 1}, "part of a frame came, and nothing more within 1 s"),
    ],
)
def test_a_server_that_stops_in_a_frame_is_given_up_in_time(limits, reason):
    async def use(db):
        with pytest.raises(SourceUnavailable, match=reason):
            await db.exec("SELECT")

    run(Peer({"SELECT": b"+5 hel"}), use, **limits)


def test_a_listen_that_is_no_call_of_its_own_is_refused_before_it_is_sent():
    peer = Peer()

    async def use(db):
        for text in (" listen foo;", "LISTEN\nTABLE foo", "PING; LISTEN TABLE foo", "/* ; */ LISTEN *"):
            with pytest.raises(LocalProtocolError, match="call listen or listen_table"):
                await db.exec(text)
        return await db.uuid()

    assert run(peer, use) == UUID
    assert not any("foo" in command for command in peer.commands)


def test_a_server_that_stops_in_a_notification_is_given_up_in_time():
    async def use(db):
        await db.listen("c")
        received = await take(db, 1)
        with pytest.raises(SourceUnavailable, match=r"did not come to its end within 0\.1 s"):
            await take(db, 1)
        return received[0].text

    assert run(Peer(on_pubsub=writing(b"#5 whole#5 hal")), use, frame_timeout=0.1) == b"whole"


def test_a_server_that_does_not_answer_is_given_up_in_time():
    async def nothing(_writer):
        pass

    async def use(db):
        with pytest.raises(SourceUnavailable, match=r"no answer within 1 s"):
            await db.ping()

    run(Peer({"PING": lambda statement: nothing}), use, timeout=1)


@pytest.mark.parametrize("request_of", [Client.ping, Client.list_channels, Client.uuid])
def test_an_answer_of_another_kind_ends_the_session(request_of):
    number = b":1 "

    async def use(db):
        with pytest.raises(RemoteProtocolError) as first:
            await request_of(db)
        with pytest.raises(RemoteProtocolError) as again:
            await db.exec("SELECT 1;")
        return str(first.value), str(again.value)

    first, again = run(Peer({"PING": number, "LIST CHANNELS": number, "GET CLIENT KEY UUID": number}), use)
    assert first == again


def test_notifications_before_a_bad_one_are_heard_and_then_the_session_is_over():
    async def use(db):
        await db.listen("c")
        received = await take(db, 2)
        with pytest.raises(RemoteProtocolError, match="unexpected_frame"):
            await take(db, 1)
        with pytest.raises(RemoteProtocolError, match="unexpected_frame"):
            await db.ping()
        return [notification.text for notification in received], [bad.frame for bad in db.bad_frames]

    assert run(Peer(on_pubsub=writing(b"#1 a#1 b:42 #1 c")), use) == ([b"a", b"b"], [b":42 #1 c"])


def test_the_end_of_the_pubsub_connection_ends_what_is_asked_on_the_main_one():
    async def write(writer):
        writer.write(b"#4 last")
        await asyncio.sleep(0.02)
        writer.close()

    async def never(_writer):
        await asyncio.sleep(10)

    async def use(db):
        await db.listen("c")
        with pytest.raises(SourceUnavailable, match="closed the pub/sub connection"):
            await db.exec("never")
        received = await take(db, 1)
        with pytest.raises(SourceUnavailable, match="closed the pub/sub connection"):
            await take(db, 1)
        return received[0].text

    assert run(Peer({"never": lambda statement: never}, on_pubsub=write), use) == b"last"


def test_the_end_of_the_main_connection_ends_hearing_after_what_had_come():
    async def leave(writer):
        await asyncio.sleep(0.02)
        writer.close()

    async def use(db):
        await db.listen("c")
        with pytest.raises(SourceUnavailable, match="closed the main connection"):
            await db.exec("leave")
        received = await take(db, 1)
        with pytest.raises(SourceUnavailable, match="closed the main connection"):
            await take(db, 1)
        return received[0].text

    assert run(Peer({"leave": lambda statement: leave}, on_pubsub=writing(b"#4 last")), use) == b"last"

"""What lands of requests: each body unaltered, its new columns before it, and marks that nobody can flood."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from silverfold.connectors.frames import Frame
from silverfold.connectors.sqlitecloud_webhooks.protocol.gate import NOT_LANDED, TOO_LARGE, Gate, Head, Refusal
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import MOST_COLUMNS
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import MOST_STREAMS, Landing
from tests.support.sqlitecloud.webhooks import STREAM, vectors, webhook

ALBUM = webhook("insert", AlbumId=1, Title="a")


def landing() -> Landing:
    return Landing([STREAM])


def kinds(frames: list[Frame]) -> list[tuple[str, str | None]]:
    return [(frame.kind.value, frame.stream) for frame in frames]


def reported_columns(frames: list[Frame]) -> list[list[str]]:
    return [json.loads(frame.body)["columns"] for frame in frames if frame.kind == "control"]


def marks(frames: list[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.body) for frame in frames if frame.kind == "mark"]


def test_a_body_lands_unaltered_behind_the_columns_that_nobody_named_before() -> None:
    one = landing()
    first, again = one.frames(ALBUM), one.frames(ALBUM)
    third = one.frames(webhook("update", Price=2, AlbumId=1, Label="x"))
    assert kinds(first) == [("control", None), ("data", STREAM)]
    assert (first[-1].body, first[-1].boundary) == (ALBUM, "whole")
    assert kinds(again) == [("data", STREAM)]
    assert reported_columns([*first, *third]) == [["AlbumId", "Title"], ["Price", "Label"]]


@pytest.mark.parametrize("vector", [pytest.param(each, id=each["name"]) for each in vectors("malformed")])
def test_what_cannot_be_read_lands_as_data_where_its_stream_is_told_and_else_whole_in_a_mark(vector: Any) -> None:
    frames = landing().frames(vector["body"])
    assert frames[-1].kind == ("data" if vector["has_stream"] else "mark")
    if vector["has_stream"]:
        assert frames[-1].body == vector["body"]
        return
    (details,) = marks(frames)
    assert details["mark"] == "bad body"
    assert details["reason"].startswith(vector["reason"])
    assert base64.b64decode(details["body"]) == vector["body"]
    assert details["length"] == len(vector["body"])


def test_a_table_that_the_feed_lacks_lands_too_and_is_told_once() -> None:
    one = landing()
    other = webhook("delete", database="other.sqlite", AlbumId=1)
    assert kinds(one.frames(other)) == [
        ("mark", None),
        ("control", None),
        ("data", "other.sqlite/albums"),
    ]
    assert kinds(one.frames(other)) == [("data", "other.sqlite/albums")]
    assert marks(landing().frames(other)) == [
        {"mark": "unknown table", "level": "warning", "table": "other.sqlite/albums"}
    ]


def test_no_more_columns_are_told_than_a_table_can_have() -> None:
    one = landing()
    many = {f"c{number}": None for number in range(MOST_COLUMNS - 1)}
    assert len(reported_columns(one.frames(webhook("update", AlbumId=1, **many)))[0]) == 2_000
    assert reported_columns(one.frames(webhook("update", AlbumId=1, d=1))) == []


def test_when_there_are_too_many_tables_to_remember_columns_are_told_again() -> None:
    one = landing()
    one.frames(ALBUM)
    for number in range(MOST_STREAMS):
        one.frames(webhook("delete", name=f"t{number}", id=1))
    assert reported_columns(one.frames(ALBUM)) == [["AlbumId", "Title"]]


def test_refused_requests_are_marked_at_once_then_counted_for_a_minute() -> None:
    one = landing()
    at = [0.0, 1.0, 59.0, 60.0, 61.0]
    found = [marks(one.refused(TOO_LARGE, now)) for now in at]
    large = {"mark": "refused", "level": "warning", "status": 413, "reason": "the body is longer than max_body_bytes"}
    assert found == [[large | {"count": 1}], [], [], [large | {"count": 3}], []]
    assert marks(one.end()) == [large | {"count": 1}]
    assert one.end() == []
    assert one.refused(NOT_LANDED, 100.0) == []


SIGNED = Gate("/hook", Signing("X-Sig", "hmac-sha256", "hex", "sha256="), 100)
SECRET = Gate("/hook", Signing("Authorization", "plain", prefix="Bearer "), 100)
RIGHT = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
BODY = b"what do ya want for nothing?"


def head(path: str = "/hook", method: str = "POST", **headers: str) -> Head:
    return Head(method, path, {name.replace("_", "-"): value for name, value in headers.items()})


def status(refusal: Refusal | None) -> int | None:
    return refusal and int(refusal.status)


@pytest.mark.parametrize(
    ("gate", "request_head", "expected"),
    [
        (SIGNED, head("/"), 404),
        (SIGNED, head("/hook/"), 404),
        (SIGNED, head(method="GET", x_sig=RIGHT), 405),
        (SIGNED, head(), 401),
        (SIGNED, head(x_sig="wrong"), None),
        (SIGNED, head(x_sig=RIGHT, content_length="101"), 413),
        (SIGNED, head(x_sig=RIGHT, content_length="100"), None),
        (SIGNED, head(x_sig=RIGHT, content_length="9" * 30), 413),
        (SIGNED, head(x_sig=RIGHT, content_encoding="gzip"), 415),
        (SECRET, head(authorization="Bearer Jefe"), None),
        (SECRET, head(authorization="Bearer Jef"), 401),
        (SECRET, head(authorization="Jefe"), 401),
        (SECRET, head(authorization="Bearer Jefe\udc80é"), 401),
        (SECRET, head(content_length="101"), 401),
        (Gate("/hook", None, 100), head(), None),
    ],
)
def test_a_request_is_judged_by_its_head_before_anything_is_read(gate, request_head, expected) -> None:
    assert status(gate.check_head(request_head, "Jefe")) == expected


@pytest.mark.parametrize(
    ("signature", "body", "expected"),
    [(RIGHT, BODY, None), (RIGHT, BODY + b" ", 401), (RIGHT[:-1] + "4", BODY, 401), (RIGHT, b"x" * 101, 413)],
)
def test_a_signature_is_of_the_body_as_sent(signature, body, expected) -> None:
    """Test case 2 of RFC 4231."""
    assert status(SIGNED.check_body(head(x_sig=signature), body, "Jefe")) == expected


def test_a_signature_may_be_in_base64() -> None:
    signing = Signing("X-Sig", encoding="base64")
    assert signing.sign(BODY, "Jefe") == "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="


def test_the_secret_is_compared_in_a_time_that_does_not_depend_on_it(monkeypatch) -> None:
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert status(SECRET.check_head(head(authorization="Bearer Jefe"), "Jefe")) == 401
    assert status(SIGNED.check_body(head(x_sig=RIGHT), BODY, "Jefe")) == 401
    assert compared == [(b"Bearer Jefe", b"Bearer Jefe"), (RIGHT.encode(), RIGHT.encode())]

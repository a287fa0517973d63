"""Errors of a source beside the tables that they end: which marks land, and what stays a stream's newest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from silverfold.connectors.frames import Kind
from silverfold.connectors.tengi.protocol.feed.packets import SourceError, Subscribe
from silverfold.connectors.tengi.receiver.epoch import Refused
from tests.support.tengi.landed import EPOCH, schema
from tests.support.tengi.played import Played


def marks_of(played: Played, stream: str | None) -> list[dict[str, Any]]:
    frames = [frame for frame in played.frames if frame.kind is Kind.MARK and frame.stream == stream]
    return [json.loads(frame.body) for frame in frames]


@pytest.mark.parametrize("code", [4, 3])
@pytest.mark.parametrize("named", [None, "items"])
def test_a_refused_table_takes_no_further_error_and_others_go_on(named: str | None, code: int) -> None:
    played = Played(tables=("orders", "items"))
    played.take(SourceError(3, "not for you", "items").to_packet())
    errors = marks_of(played, "items")
    later = SourceError(code, "busy", named).to_packet()
    if code == 3 and named is None:
        with pytest.raises(Refused, match="busy") as refused:
            played.take(later)
        assert [frame.stream for frame in refused.value.frames] == ["orders"]
    else:
        played.take(later)
        assert len(marks_of(played, "orders")) == 1 + (named is None)
    played.wait(400)
    assert marks_of(played, "items") == errors
    assert errors[-1] == {"mark": "source error", "level": "warning", "code": 3, "text": "not for you"}
    assert [each for each in played.asked[2:] if each == Subscribe("items", -1)] == []


def test_an_error_of_an_unknown_table_lands_with_its_code_and_text_and_names_why_tables_were_asked_for_in_vain() -> (
    None
):
    played = Played({"orders": f"{EPOCH}:7"}, subscribe_wait=10)
    error = SourceError(1, "there is no such table", "public.orders").to_packet()
    played.take(*[schema(table="public.orders")] * 9, *[error] * 10)
    found = marks_of(played, None)
    assert [(each["what"], each["count"], each.get("text")) for each in found] == [
        ("table public.orders", 1, None),
        ("error 1 of table public.orders", 1, "there is no such table"),
        ("error 1 of table public.orders", 10, "there is no such table"),
    ]
    assert [each["code"] for each in found[1:]] == [1, 1]
    for _ in range(3):
        played.take(error)
        played.wait(320)
    assert played.newest_mark["mark"] == "asked in vain"
    assert played.newest_mark["reason"] == "error 1 of table public.orders: there is no such table"


def test_errors_of_tables_with_endless_names_land_in_bounds() -> None:
    played = Played({"orders": f"{EPOCH}:7"}, subscribe_wait=10)
    for _ in range(3):
        played.take(SourceError(1, "no", "x" * 10_000).to_packet())
        played.wait(320)
    (unexpected,) = marks_of(played, None)
    assert len(unexpected["what"]) == 100
    assert played.newest_mark["reason"] == f"{unexpected['what']}: no"

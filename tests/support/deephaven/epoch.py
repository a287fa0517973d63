"""In-memory epochs in the states that tests start from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.receiver.epoch import Epoch
from silverfold.connectors.frames import Frame
from tests.support.chance import Clock, Highest
from tests.support.deephaven.frames import GREETING, ROLES, response, sent

TABLES = {"quotes": DeephavenTable(source="Quotes"), "trades": DeephavenTable(source="Trades", mode="updates_only")}


def begun(
    tables: Mapping[str, DeephavenTable] = TABLES,
    *,
    clock: Clock | None = None,
    suspensions: Mapping[str, float] | None = None,
) -> Epoch:
    """An epoch that has received nothing."""
    return Epoch(
        Session(ROLES),
        tables,
        suspensions=suspensions or dict.fromkeys(tables, 0.0),
        backoffs={name: Backoff(2.0, 30.0, Highest()) for name in tables},
        clock=clock or Clock(),
    )


def subscribed(tables: Mapping[str, DeephavenTable] = TABLES, **gear: Any) -> Epoch:
    """An epoch whose handshake and subscribe requests have been answered."""
    epoch = begun(tables, **gear)
    epoch.receive(sent(GREETING))
    epoch.requests()
    epoch.receive(sent(*(response(number) for number in range(1, len(tables) + 1))))
    return epoch


def outline(frames: Iterable[Frame]) -> list[tuple[str | None, str, str]]:
    """Stream, kind and boundary of each frame."""
    return [(frame.stream, frame.kind.value, frame.boundary.value) for frame in frames]


def marks(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    """Decoded bodies of the marks among the frames."""
    return [json.loads(frame.body) for frame in frames if frame.kind == "mark"]

"""Statuses: the server's own error, what to do, and the error to raise without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.protocol.status import ErrorCode, Status, status_text
from tests.support.hstreamdb.vectors import names, vectors


@pytest.mark.parametrize("vector", vectors("status"), ids=names("status"))
def test_statuses_are_read_as_documented(vector: dict[str, Any]) -> None:
    status = Status(vector["grpc_code"], vector["details"])
    details = status.details or {}
    found = (details.get("error"), details.get("message"), details.get("extra"))
    assert found == (vector["error_code"], vector["error_name"], vector["extra"])
    assert status.action == vector["action"]


def test_what_a_later_try_may_repair_is_unavailable_and_the_rest_refused() -> None:
    assert isinstance(Status("UNAVAILABLE", "down").error("Append"), SourceUnavailable)
    text = status_text(ErrorCode.STREAM_NOT_FOUND, "StreamNotFound", "orders")
    refused = Status("NOT_FOUND", text).error("GetStream")
    assert isinstance(refused, SourceRefused)
    assert (refused.code, refused.stream) == ("StreamNotFound", "GetStream")
    assert json.loads(text) == {"error": 200, "extra": "orders", "message": "StreamNotFound"}


@pytest.mark.parametrize(
    "text", ["Invalid token: Basic dXNlcjpiYWQ=", '{"error": 0, "message": "Basic dXNlcjpiYWQ=", "extra": 1}']
)
def test_no_error_repeats_a_token(text: str) -> None:
    error = Status("UNAUTHENTICATED", text).error("Echo")
    assert "dXNlcjpiYWQ" not in str(error)
    assert "Basic ***" in str(error)


@pytest.mark.parametrize("text", ['{"error": true, "message": "x"}', '{"error": 1}', "[" * 100_000, "\x00"])
def test_any_other_text_is_only_text(text: str) -> None:
    assert Status("UNKNOWN", text).details is None

"""URLs and settings of a connection, by the vectors; what is wrong is refused without showing a secret."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings, InvalidUrl, Tls, basic_token, parse_url
from tests.support.hstreamdb.vectors import vectors

ACCEPTED = [each for each in vectors("url") if each["error"] is None]
REFUSED = [each for each in vectors("url") if each["error"] is not None]


@pytest.mark.parametrize("vector", ACCEPTED, ids=[each["url"] for each in ACCEPTED])
def test_urls_are_read_as_the_vectors_have_them(vector: dict[str, Any]) -> None:
    found = parse_url(vector["url"])
    assert (found.is_encrypted, [list(each) for each in found.addresses]) == (vector["tls"], vector["hosts"])


@pytest.mark.parametrize("vector", REFUSED, ids=[each["url"] for each in REFUSED])
def test_wrong_urls_are_refused_with_their_kind(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidUrl) as refused:
        parse_url(vector["url"])
    assert refused.value.kind == vector["error"]


def test_a_user_in_a_url_is_no_port() -> None:
    with pytest.raises(InvalidUrl, match="hosts without user") as refused:
        parse_url("hstream://me:secret@h1")
    assert refused.value.kind == "bad_host"


def test_hosts_are_grpc_targets_in_small_letters_with_ipv6_in_brackets() -> None:
    assert ConnectionSettings(url="hstream://[::1],h2:7000,H2:7000").seeds == ["[::1]:6570", "h2:7000"]


@pytest.mark.parametrize("vector", vectors("token"))
def test_a_token_is_made_of_user_and_password(vector: dict[str, Any]) -> None:
    assert basic_token(vector["user"], vector["password"]) == vector["token"]


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"url": "hstream://h", "tls": Tls()}, "hstreams://, since certificates are given"),
        ({"url": "hstream://h", "token": "c2VjcmV0"}, "token only with hstreams://"),
        ({"url": "hstreams://h", "token": "Basic c2VjcmV0"}, "base64 of user:password"),
        ({"url": "hstream://h", "advertised": {"h": "h:1"}}, "host:port"),
        ({"url": "hstream://h", "timeout": 0}, "greater than 0"),
        ({"url": "hstream://h", "time_out": 1}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], allowed: str) -> None:
    with pytest.raises(ValidationError, match=allowed) as refused:
        ConnectionSettings(**settings)
    assert "c2VjcmV0" not in str(refused.value)


def test_a_client_certificate_needs_its_key() -> None:
    with pytest.raises(ValidationError, match="client_certificate and client_certificate_key together"):
        Tls(client_certificate="client.pem")


def test_no_settings_show_their_token() -> None:
    settings = ConnectionSettings(url="hstreams://h", token=basic_token("me", "secret"))
    assert basic_token("me", "secret") not in f"{settings!r} {settings}"


def test_a_missing_library_is_one_line_with_the_name_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("silverfold.connectors.hstreamdb.client.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ModuleNotFoundError, match=r"^HStreamDB's client needs .*: install silverfold\[hstreamdb\]$"):
        asyncio.run(connect("hstream://127.0.0.1:1"))

"""Receivers read certificates and secrets for each epoch, and whoever renews a file may not be done at that moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.conf.model import FeedSettings, Settings
from silverfold.connectors.frames import Receiver, Resume
from silverfold.connectors.registry import open_feed
from tests.support.certificates import AUTHORITY
from tests.support.memory import MemorySink


class Renewed(NamedTuple):
    """A feed whose source is away, or whose address is taken, and the file that it reads for each epoch."""

    connector: str
    file: str
    key: str
    settings: Callable[[Path, int], dict[str, Any]]

    @property
    def is_shown(self) -> bool:
        """Whether it belongs to a certificate that a listener shows: it goes on with the one that it had."""
        return self.file == "key.pem"


LISTENING = {"transport": "tcp", "mode": "listen", "tls": True}
TENGI_SECRET = {"transport": "http", "tls": True, "tls_verify": False}


def with_options(address: str, **options: Any) -> dict[str, Any]:
    return {"address": address, "options": options}


CASES = {
    "tengi": Renewed(
        "tengi",
        "ca.pem",
        "options.tls_ca",
        lambda at, port: with_options(f"tengi://127.0.0.1:{port}", transport="tcp", tls=True, tls_ca=f"{at}/ca.pem"),
    ),
    "tengi, a secret": Renewed(
        "tengi",
        "secret",
        "options.handshake.token",
        lambda at, port: with_options(
            f"tengi://127.0.0.1:{port}", **TENGI_SECRET, handshake={"token": {"file": f"{at}/secret"}}
        ),
    ),
    "tengi, listening": Renewed(
        "tengi",
        "key.pem",
        "options.tls_certificate",
        lambda at, port: with_options(
            f"tengi://127.0.0.1:{port}", **LISTENING, tls_certificate=f"{at}/server.pem", tls_key=f"{at}/key.pem"
        ),
    ),
    "sqlitecloud": Renewed(
        "sqlitecloud",
        "ca.pem",
        "root_certificate",
        lambda at, port: with_options(
            f"sqlitecloud://127.0.0.1:{port}/shop.db?root_certificate={at}/ca.pem", apikey={"file": f"{at}/secret"}
        ),
    ),
    "sqlitecloud, a secret": Renewed(
        "sqlitecloud",
        "secret",
        "options",
        lambda at, port: with_options(f"sqlitecloud://127.0.0.1:{port}/shop.db", apikey={"file": f"{at}/secret"}),
    ),
    "hstreamdb": Renewed(
        "hstreamdb",
        "ca.pem",
        "options.ca",
        lambda at, port: with_options(
            f"hstreams://127.0.0.1:{port}", stream="orders", subscription="feed", ca=f"{at}/ca.pem"
        ),
    ),
    "hstreamdb, a secret": Renewed(
        "hstreamdb",
        "secret",
        "options.token",
        lambda at, port: with_options(
            f"hstreams://127.0.0.1:{port}", stream="orders", subscription="feed", token={"file": f"{at}/secret"}
        ),
    ),
    "webhooks": Renewed(
        "sqlitecloud_webhooks",
        "key.pem",
        "options.certificate",
        lambda at, port: with_options(
            f"127.0.0.1:{port}",
            database="shop.db",
            certificate=f"{at}/server.pem",
            certificate_key=f"{at}/key.pem",
            secret={"file": f"{at}/secret"},
            header="X",
        ),
    ),
    "webhooks, a secret": Renewed(
        "sqlitecloud_webhooks",
        "secret",
        "options.secret",
        lambda at, port: with_options(
            f"127.0.0.1:{port}", database="shop.db", secret={"file": f"{at}/secret"}, header="X"
        ),
    ),
}
TABLES = {
    "hstreamdb": {"keys": ["id"], "columns": {"id": "bigint"}},
    "sqlitecloud_webhooks": {"keys": ["id"], "types": {"id": "bigint"}},
}
"""What connectors need to know of a table."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that nobody serves, and that cannot be listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("renewed", CASES.values(), ids=CASES)
def test_a_file_that_was_right_is_waited_for_and_one_that_never_was_is_a_mistake(
    renewed: Renewed, tmp_path: Path, taken: int
) -> None:
    issued = AUTHORITY.issue_cert("127.0.0.1")
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "secret").write_text("dXNlcjpwYXNz\n")
    table = TABLES.get(renewed.connector, {})
    feed = FeedSettings(connector=renewed.connector, tables={"orders": table}, **renewed.settings(tmp_path, taken))
    connector, opened = open_feed("shop", Settings(warehouse="w", feeds={"shop": feed}))
    receiver, file = connector.receiver(opened), tmp_path / renewed.file
    content, other = file.read_bytes(), AUTHORITY.issue_cert("127.0.0.1").private_key_pem.bytes()

    with pytest.raises(SourceUnavailable) as away:
        once(receiver)
    broken = [b"", content[: len(content) // 2], *([other] if renewed.file == "key.pem" else ())]
    for text in broken if renewed.file != "secret" else [b""]:
        file.write_bytes(text)
        check(receiver, connector.receiver(opened), renewed.key, "", is_shown=renewed.is_shown)
    file.unlink()
    check(receiver, connector.receiver(opened), "", str(file), is_shown=renewed.is_shown)
    file.write_bytes(content)
    with pytest.raises(SourceUnavailable) as again:
        once(receiver)
    assert str(again.value) == str(away.value)


def check(receiver: Receiver, new: Receiver, key: str, path: str, *, is_shown: bool) -> None:
    """Check that a receiver which had the file tries again, that a new one does not, and what both name."""
    with pytest.raises(SourceUnavailable, match=r"address" if is_shown else r"it was right before") as waits:
        once(receiver)
    with pytest.raises(ConfigError) as ends:
        once(new)
    assert is_shown or str(waits.value).startswith(str(ends.value))
    assert key in str(ends.value)
    assert path in str(ends.value)


def once(receiver: Receiver) -> None:
    asyncio.run(asyncio.wait_for(receiver.run(MemorySink(), Resume(1)), 30))

"""The simulator's command: it publishes files until it is stopped, dials if asked to, and names a wrong option."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.transport import Address, parse_address
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.server.command import tengi
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.listening import Listening
from silverfold.jobs.cli import as_command
from tests.support.certificates import AUTHORITY, trusted_file
from tests.support.tengi.feed_client import follow
from tests.support.tengi.model_receiver import ModelReceiver

COMMAND = """
import sys
from silverfold.connectors.tengi.server.command import tengi
from silverfold.jobs.cli import as_command

as_command("tengi", tengi)(sys.argv[1:])
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text("id,customer,price\n1,ann,1.5\n2,bob,2.25\n3,cy,4\n")
    return path


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the command; yield its process and the first two lines that it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    ) as process:
        try:
            assert process.stdout is not None
            yield process, [next_line(process) for _ in range(2)]
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that is no log."""
    assert process.stdout is not None
    return next(line.strip() for line in process.stdout if not line.startswith("20"))


def builder(transport: Transport, port: int = 0) -> ConfigurationBuilder:
    return ConfigurationBuilder().add_transport(transport, port=port)


async def snapshot_over(link: Link) -> ModelReceiver:
    receiver = ModelReceiver("orders")
    receiver.restart(0.0)
    await follow(link, receiver, lambda: receiver.snapshots == 1)
    await link.close()
    return receiver


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_publishes_tables_over_all_transports_and_ends_in_order_on_a_signal(
    orders: Path, number: signal.Signals
) -> None:
    async def snapshot(address: Address, transport: Transport) -> ModelReceiver:
        return await snapshot_over(await open_link(address, transport, builder(transport).build()))

    options = ("--port", "0", "--changes-per-second", "500", "--changes-for", "0.3")
    with running("--table", f"orders={orders}", *options) as (process, (listening, table)):
        assert table == "table orders: 3 rows, 3 columns"
        quiet = next_line(process)
        assert int(quiet.removeprefix("quiet after ").removesuffix(" changes")) > 0
        shown = listening.removeprefix("listening on tengi://").removesuffix(" (tcp, websocket, http)")
        found = [asyncio.run(snapshot(parse_address(shown), each)) for each in Transport]
        assert found[0].rows
        assert found[0].rows == found[1].rows == found[2].rows
        process.send_signal(number)
        assert process.wait(20) == 0


def test_with_a_certificate_and_a_token_only_who_has_both_is_served(orders: Path, tmp_path: Path) -> None:
    async def snapshot(port: int) -> ModelReceiver:
        known = builder(Transport.TCP).ssl(ca=trusted_file(tmp_path))
        with pytest.raises(SourceUnavailable):
            await open_link(Address("localhost", port), Transport.TCP, known.build())
        settings = known.set(handshake={"token": "s3cret"}).build()
        return await snapshot_over(await open_link(Address("localhost", port), Transport.TCP, settings))

    options = ("--port", "0", "--transport", "tcp", "--changes-per-second", "0", "--token-env", "FEED_TOKEN")
    certificate = tmp_path / "certificate.pem"
    AUTHORITY.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    tls = ("--certificate", str(certificate))
    with running("--table", f"orders={orders}", *options, *tls, FEED_TOKEN="s3cret") as (_, (listening, _table)):
        port = int(listening.removesuffix(" (tcp)").rpartition(":")[2])
        assert set(asyncio.run(snapshot(port)).rows) == {(1,), (2,), (3,)}


def test_it_dials_a_receiver_that_listens(orders: Path) -> None:
    async def receive() -> ModelReceiver:
        found: asyncio.Future[ModelReceiver] = asyncio.get_running_loop().create_future()

        async def on_link(link: Link) -> None:
            receiver = await snapshot_over(link)
            if not found.done():
                found.set_result(receiver)

        listening = Listening(builder(Transport.TCP).build(), on_link, structlog.get_logger("test"))
        await listening.start()
        address = f"127.0.0.1:{listening.ports[Transport.TCP]}"
        options = ("--transport", "tcp", "--dial", address, "--changes-per-second", "0")
        with running("--table", f"orders={orders}", *options, "--keys", "orders=customer,id") as (
            _,
            (dialling, _table),
        ):
            assert dialling == f"dialling tengi://{address}"
            receiver = await found
        await listening.stop()
        return receiver

    assert set(asyncio.run(receive()).rows) == {("ann", 1), ("bob", 2), ("cy", 3)}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--table orders", "is not NAME=FILE"),
        ("--table =a.csv", "is not NAME=FILE"),
        ("--table a=x.csv --table a=y.csv", "is not NAME=FILE"),
        ("--table a=ORDERS --keys b=id", "no table 'b' is published"),
        ("--table a=ORDERS --dial nowhere", "is not host:port"),
        ("--table a=ORDERS --transport udp", "--transport"),
        ("--table a=ORDERS --lose 2", "--lose"),
        ("--table a=ORDERS --history 0", "--history"),
        ("--table a=ORDERS --token-env EMPTY_TOKEN", "is no variable with a token in it"),
        ("--table a=ORDERS --token-env FEED_TOKEN --dial 192.0.2.1:8080", "over TLS only: --ca too"),
        ("--table a=ORDERS --key k.pem", "--key goes with --certificate"),
        ("--table a=ORDERS --ca k.pem", "--ca for who dials"),
    ],
)
def test_a_wrong_option_is_named(
    arguments: str,
    complaint: str,
    orders: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY_TOKEN", "")
    monkeypatch.setenv("FEED_TOKEN", "s3cret")
    with pytest.raises(SystemExit) as left:
        as_command("tengi", tengi)(arguments.replace("ORDERS", str(orders)).split())
    assert left.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.replace("│", " ").split())

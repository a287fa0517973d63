"""Tables published over tengi by one process, received and built by others: killed, and silver is the source's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from silverfold.connectors.tengi.protocol.events import MessageReceived, Transport
from silverfold.connectors.tengi.protocol.feed.heading import read_heading
from silverfold.connectors.tengi.protocol.feed.packets import Subscribe
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.pipelines.landing.bronze import last_source_positions
from silverfold.pipelines.store import open_table
from tests.support.processes import FeedProcesses

pytestmark = pytest.mark.xdist_group("kills")

ORDERS = "id,customer,total,placed\n" + "".join(
    f"{at},c{at % 7},{at}.25,2026-01-{at % 28 + 1:02d}\n" for at in range(1, 200)
)

FEED = """
connector = "tengi"
address = "tengi://127.0.0.1:{port}"
options = {{ transport = "{transport}", peer = "{peer}", ack_interval = 0.1, reorder_wait = 0.5 }}
commit = {{ interval_ms = 20 }}
reconnect = {{ first = 0.1, longest = 0.5 }}

[tables.orders]
"""


class Shop(FeedProcesses):
    """A folder with a table and a feed of it, and the processes that publish, receive and build it."""

    def __init__(self, folder: Path, rng: Random, transport: str, peer: str) -> None:
        super().__init__(folder, rng)
        self.file, self.transport = folder / "orders.csv", transport
        self.file.write_text(ORDERS)
        self.port, self.simulations = 0, 0
        self.simulate()
        self.receive_as(FEED.format(port=self.port, transport=transport, peer=peer))

    def simulate(self, *arguments: str) -> None:
        """Publish the table, and let it change."""
        self.simulations += 1
        chosen = ("--transport", self.transport, "--port", str(self.port), "--seed", str(self.simulations))
        faults = ("--lose", "0.02", "--repeat", "0.02", "--reorder", "0.05", "--part-rows", "50")
        rate = ("--changes-per-second", "200")
        table = ("--table", f"orders={self.file}")
        process = self.start("simulate", "tengi", *table, *chosen, *rate, *(arguments or faults), is_read=True)
        assert process.stdout is not None
        self.port = int(process.stdout.readline().rpartition(":")[2].split()[0])

    def come_to_rest(self) -> None:
        self.kill("simulate")
        self.simulate("--changes-for", "1")
        self.await_quiet()
        newest = asyncio.run(self.position())
        self.until(lambda: self.progress() == newest)
        self.stop("receive")

    async def position(self) -> str:
        """Return the source's position, as a snapshot of the table has it."""
        settings = ConfigurationBuilder().add_transport(self.transport, port=self.port).build()
        link = await open_first_link("127.0.0.1", settings)
        try:
            await link.send(Message.create(Subscribe("orders", -1).to_packet()))
            while True:
                event = await link.next_event()
                assert isinstance(event, MessageReceived)
                heading = read_heading(event.raw, event.body_at)
                if heading.name == "snapshot":
                    return str(heading.position)
        finally:
            await link.abort()

    def progress(self) -> str:
        """Return the newest position of the source that landed; empty for none."""
        bronze = open_table(self.bronze)
        return "" if bronze is None else last_source_positions(bronze).get("orders", "")


@pytest.fixture
def shop(tmp_path: Path, transport: str, peer: str) -> Iterator[Shop]:
    with closing(Shop(tmp_path, Random(7), transport, peer)) as shop:
        yield shop


LIVES = ["receive", "simulate", "receive", "simulate", "receive"]


@pytest.mark.parametrize(
    ("transport", "peer", "victims", "follows"),
    [
        pytest.param("tcp", "tengi", ["receive"], True, id="short"),  # each build takes a JVM
        *(
            pytest.param(each.value, "tengi", [*LIVES, *builds], False, marks=pytest.mark.nightly)
            for each in Transport
            for builds in ([], ["build"] * 2)
        ),
        # From Java a packet of more than 256 bytes, as each with a row is, ends a connection over TCP.
        *(pytest.param(each, "java", LIVES, False, marks=pytest.mark.nightly) for each in ("websocket", "http")),
    ],
)
def test_whoever_is_killed_silver_is_what_the_source_holds(
    spark: SparkSession, shop: Shop, victims: list[str], *, follows: bool
) -> None:
    shop.survive(*victims, follows=follows)

    assert shop.run("verify", "shop") == 0
    assert shop.run("verify", "shop", "--against-source") == 0

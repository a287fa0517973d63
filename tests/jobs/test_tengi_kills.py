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
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from tests.jobs.test_kills import A_JVM_OF_ITS_OWN
from tests.support.processes import Processes

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


class Shop(Processes):
    """A folder with a table and a feed of it, and the processes that publish, receive and build it."""

    def __init__(self, folder: Path, rng: Random, transport: str, peer: str) -> None:
        super().__init__(folder, rng)
        self.file, self.transport = folder / "orders.csv", transport
        self.file.write_text(ORDERS)
        self.port, self.simulations = 0, 0
        self.simulate()
        (folder / "feeds").mkdir()
        (folder / "feeds/shop.toml").write_text(FEED.format(port=self.port, transport=transport, peer=peer))
        self.places = Places(self.warehouse)
        self.bronze = self.places.bronze("shop")
        self.receive()

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

    def receive(self) -> None:
        """Receive the feed; return once something of the source has landed anew."""
        before = self.landed()
        self.start("receive", *self.conf, "shop")
        self.until(lambda: self.landed() > before)

    def build(self) -> None:
        """Build in a JVM of its own whatever lands; return once there is a table."""
        self.start("build", *self.conf, "shop", "--follow", SILVERFOLD__SPARK=A_JVM_OF_ITS_OWN)
        self.until(lambda: open_table(self.places.silver("shop", "orders")))

    def come_to_rest(self) -> None:
        """Let the changes end, and the receiver once it has landed them all."""
        self.kill("simulate")
        self.simulate("--changes-for", "1")
        quiet = self.running["simulate"].stdout
        assert quiet is not None
        while not quiet.readline().startswith("quiet after"):
            assert self.running["simulate"].poll() is None
        newest = asyncio.run(self.position())
        self.until(lambda: self.landed() == newest)
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

    def landed(self) -> str:
        """Return the newest position of the source that landed; empty for none."""
        bronze = open_table(self.bronze)
        return "" if bronze is None else last_source_positions(bronze).get("orders", "")


@pytest.fixture
def shop(tmp_path: Path, transport: str, peer: str) -> Iterator[Shop]:
    with closing(Shop(tmp_path, Random(7), transport, peer)) as shop:
        yield shop


LIVES = ["receive", "simulate", "receive", "simulate", "receive"]


@pytest.mark.parametrize(
    ("transport", "peer", "victims"),
    [
        pytest.param("tcp", "tengi", ["receive", "build"], id="short"),
        *(
            pytest.param(each.value, "tengi", [*LIVES, *builds], marks=pytest.mark.nightly)
            for each in Transport
            for builds in ([], ["build"] * 2)
        ),
        # From Java a packet of more than 256 bytes, as each with a row is, ends a connection over TCP.
        *(pytest.param(each, "java", LIVES, marks=pytest.mark.nightly) for each in ("websocket", "http")),
    ],
)
def test_whoever_is_killed_silver_is_what_the_source_holds(spark: SparkSession, shop: Shop, victims: list[str]) -> None:
    shop.rng.shuffle(victims := list(victims))
    last = max((at for at, each in enumerate(victims) if each == "build"), default=-1)
    if last >= 0:
        shop.build()
    for at, victim in enumerate(victims):
        shop.kill(victim)
        if at != last:  # the build in the end is the next life of the last one
            {"receive": shop.receive, "simulate": shop.simulate, "build": shop.build}[victim]()
    shop.come_to_rest()

    assert shop.run("build", "shop") == 0
    assert shop.run("verify", "shop") == 0
    assert shop.run("verify", "shop", "--against-source") == 0

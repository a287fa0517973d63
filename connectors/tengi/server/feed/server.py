"""A source of change feeds in a thread of its own::

table = SourceTable("orders", {"id": "bigint", "name": "string"}, ["id"], rows, epoch=new_epoch())
with FeedServer.start(FeedSource([table]), configuration) as server:
    server.change(table, RowChanges(removed=[(7,)]))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final, Self, TypeVar

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.unix_time import now_micros
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.server_thread import ServerThread
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.serving import FeedService
from silverfold.connectors.tengi.server.feed.source import FeedSource
from silverfold.connectors.tengi.server.feed.tables import RowChanges, SourceTable
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.connectors.tengi.transports.listening import Listening

_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0

_YEAR_2020: Final = 1_577_836_800
"""2020-01-01 in seconds since 1970. Versions count from there, for they have 32 bits."""

_T = TypeVar("_T")


class FeedServer(ServerThread):
    """A running source, which listens for receivers, or dials listening ones. Thread-safe; closes on exit.

    Args:
        source: The tables. While the server runs, only `change` and `run` may use them.
        configuration: Transports with their ports, TLS, and handshakes.
        dial: Receivers to dial, over the configuration's first transport that connects. Nothing listens then.
        faults: Faults that happen to packets.
        seed: Decides when they do.
    """

    def __init__(
        self,
        source: FeedSource,
        configuration: Configuration,
        *,
        dial: Sequence[Address] = (),
        faults: FeedFaults | None = None,
        seed: int | str = 0,
    ) -> None:
        super().__init__("tengi")
        self._source, self._configuration, self._dial = source, configuration, dial
        chance = Random(seed)  # noqa: S311 - faults are no secret
        self._service = FeedService(source, faults=faults or FeedFaults(), chance=chance)
        self._listening = Listening(configuration, self._service.serve, self._log)
        self._dialing: list[asyncio.Task[None]] = []

    @classmethod
    def start(
        cls,
        source: FeedSource,
        configuration: Configuration,
        *,
        dial: Sequence[Address] = (),
        faults: FeedFaults | None = None,
        seed: int | str = 0,
    ) -> Self:
        """Start a source.

        Raises:
            ConfigError: A file for TLS cannot be used.
            SourceUnavailable: A port cannot be listened on.
        """
        server = cls(source, configuration, dial=dial, faults=faults, seed=seed)
        try:
            return server._start()
        except BaseException:
            server.close()
            raise

    @property
    def client_count(self) -> int:
        """Number of connections to receivers."""
        return self._service.link_count

    @property
    def ports(self) -> Mapping[Transport, int]:
        """Port of each transport; empty if the source dials."""
        return self._listening.ports

    def change(self, table: SourceTable, changes: RowChanges) -> int:
        """Make an update of a table, committed now; return its ``seq``. Raises as `SourceTable.apply`."""
        return self.run(lambda _: table.apply(changes, ts=now_micros()))

    def run(self, work: Callable[[FeedSource], _T]) -> _T:
        """Run a function on the source, between packets, and return its result."""

        async def work_and_wake() -> _T:
            try:
                return work(self._source)
            finally:
                self._service.wake()

        return self._wait_for(work_and_wake())

    def disconnect_all(self) -> None:
        """Break all connections to receivers. They may reconnect, or are dialled again."""
        if self._thread.is_alive():
            self._wait_for(self._service.disconnect())

    async def _open(self) -> None:
        if self._dial:
            if self._configuration.tls is not None:
                self._configuration.tls.client_context()  # dialling again would not mend its file
            self._dialing = [asyncio.create_task(self._serve_dialled(each)) for each in self._dial]
        else:
            await self._listening.start()

    async def _shut(self) -> None:
        await self._listening.stop()

    async def _serve_dialled(self, address: Address) -> None:
        """Dial a receiver again and again: it may not listen yet."""
        ports = dict.fromkeys(self._configuration.transports, address.port)
        configuration = replace(self._configuration, transports=ports)
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT, Random())  # noqa: S311 - waits are no secret
        while True:
            try:
                link = await open_first_link(address.host, configuration, self._log)
                backoff.reset()
                try:
                    await self._service.serve(link)
                finally:
                    await link.abort()
            except SilverfoldError as error:
                self._log.info("no_receiver", address=str(address), reason=str(error))
            await asyncio.sleep(backoff.next_wait())


def new_epoch() -> str:
    """Return the source epoch of a numbering that begins now.

    A source that was restored from a backup needs a new one: receivers notice lost updates only while it is behind.
    """
    return f"{now_micros():020d}"


def first_version(epoch: str) -> int:
    """Return the first schema version of a source epoch. It grows with each second.

    A file may have other columns at the next start, and receivers remember schemas by version.
    """
    return int(epoch) // 1_000_000 - _YEAR_2020

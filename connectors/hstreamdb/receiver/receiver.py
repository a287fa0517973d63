"""The receiver: fetches of one subscription, landed as received and acknowledged once committed.

An epoch ends when one of its fetches ends. Acknowledgements that were not sent go out with the next epoch's fetches:
they count if the node still has its state of the subscription, and are ignored otherwise.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

from silverfold.conf.errors import ConfigError, SourceRefused, SourceUnavailable
from silverfold.connectors.common.backoff import RenewedFiles
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.frames import Frame, FrameSink, Resume, mark
from silverfold.connectors.hstreamdb.client.administration import OF_OTHER_STREAM
from silverfold.connectors.hstreamdb.client.client import Client, open_feed_client
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, Fetch
from silverfold.connectors.hstreamdb.options import HStreamFeed
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse
from silverfold.connectors.hstreamdb.protocol.status import Action
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, LandedBatches, landed_batches
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from silverfold.connectors.hstreamdb.receiver.landing import Acknowledgements, Landing
from silverfold.connectors.hstreamdb.receiver.progress import Progress, check_stream

COMMIT_SECONDS, ANSWER_SECONDS = 0.2, 0.05
"""Assumed time of a commit, and until the server has an acknowledgement."""
FEW_RECORDS = 10_000
"""A window that allows fewer records a second is worth a warning."""
LOGIN_REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
"""Codes of calls that are refused because of who calls."""


class HStreamReceiver:
    """A `connectors.frames.Receiver`."""

    def __init__(self, feed: HStreamFeed, environ: Mapping[str, str]) -> None:
        self._feed, self._options, self._environ = feed, feed.options, environ
        self._files = RenewedFiles()
        self._acks: Sequence[AckQueue] = ()
        self._last_control: bytes | None = None
        self._landed: Mapping[int, LandedBatches] = {}
        self._overdue = Overdue()
        self._consumer_prefix = f"{feed.name}-{uuid.uuid4().hex[:8]}"  # of this process: another's are not ours

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Fetch until a call ends; see `connectors.frames.Receiver`.

        Raises:
            SourceUnavailable: No node answers, or a fetch ended. The next call creates a subscription that is gone.
            SourceRefused: There is no such stream or subscription, or the server refuses the token.
            ConfigError: The subscription exists with other settings, or a secret or certificate cannot be used;
                SourceUnavailable if it could in an earlier epoch.
            RemoteProtocolError: A frame that cannot be acknowledged keeps coming.
        """
        try:
            with self._files.retrying_refusals(lambda error: error.code in LOGIN_REFUSED):
                await self._run(sink, resume)
        except SourceRefused as error:
            if not self._may_pass(error):
                raise
            raise SourceUnavailable(str(error)) from error

    def _may_pass(self, error: SourceRefused) -> bool:
        """Return whether the next epoch may do better; a node that accepted our token does not cancel because of it."""
        return (error.code == "SubscriptionNotFound" and self._options.create) or (
            error.code == "CANCELLED" and self._files.have_let_us_in
        )

    async def _run(self, sink: FrameSink, resume: Resume) -> None:
        self._acks = self._acks or [AckQueue() for _ in range(self._options.consumers)]
        with self._files.reading():
            opened = await open_feed_client(self._feed, self._environ)
        async with opened as client:
            options = self._options
            token_may_change = options.token is not None and options.token.may_change
            self._files.let_in(trust=bool(options.ca), login=token_may_change or bool(options.certificate))
            found = await self._subscription(client, has_landed=self._options.stream in resume.source_positions)
            unacked, timeout = found.subscription.max_unacked_records, found.subscription.ack_timeout_seconds
            self._landed = self._landed or landed_batches(
                [*resume.source_positions.values(), *resume.silver_positions.values()]
            )
            control = ControlFrames(self._options, found.subscription, self._last_control or resume.last_control)
            if control.is_anew:
                self._overdue = self._overdue.of_another_subscription()
            epoch = Epoch(self._options.stream, control.expected(self._landed))
            progress = Progress(
                client,
                self._options,
                epoch,
                control,
                subscription=found.subscription,
                overdue=self._overdue,
                feed=self._feed.name,
                ours=f"{self._consumer_prefix}-",
                clock=asyncio.get_running_loop().time,
            )
            marks = window_marks(self._feed, max_unacked=unacked, ack_timeout=timeout)
            try:
                # Frames of a subscription that was created anew are no copies: so its control frame is before them.
                await sink.land([*marks, *control.next_frames(found, epoch)])
                fetches = [await self._open(client, acks) for acks in self._acks]
                fetched = (await client.get_subscription(self._options.subscription)).subscription
                if creation_of(fetched) != creation_of(found.subscription):  # meanwhile: it sends what was missing
                    raise SourceUnavailable(f"the subscription {self._options.subscription} was made anew")
                subscribed = mark(
                    "subscribed",
                    subscription=self._options.subscription,
                    nodes=sorted({each.node for each in fetches}),
                    consumers=[each.consumer for each in fetches],
                    max_unacked=unacked,
                    ack_timeout=timeout,
                )
                await sink.land([subscribed])
                await self._land_all(fetches, sink, progress, most=max(unacked // 2, 1))
            finally:
                self._last_control, self._landed = control.last, epoch.landed

    async def _subscription(self, client: Client, *, has_landed: bool) -> GetSubscriptionResponse:
        """Return the subscription, created if allowed, and what of it is acknowledged."""
        options = self._options
        if options.create:
            offset = await self._offset(client, has_landed=has_landed)
            try:
                await client.create_subscription(
                    options.subscription,
                    options.stream,
                    ack_timeout_seconds=options.ack_timeout_seconds,
                    max_unacked_records=options.max_unacked_records,
                    offset=offset,
                )
            except ConfigError as error:
                raise self._other_setting(error) from error
        found = await client.get_subscription(options.subscription)
        check_stream(found, options)
        return found

    def _other_setting(self, error: ConfigError) -> ConfigError:
        """Return the error for a subscription with other settings, with the feed's own that is to be changed."""
        name = "stream" if error.key == "stream_name" else error.key
        ways = OF_OTHER_STREAM if name == "stream" else "it exists already; with create = false, any is taken"
        return ConfigError(
            file=f"feeds/{self._feed.name}.toml",
            key=f"options.{name}",
            found=getattr(self._options, name),
            allowed=f"{error.found!r}, as the subscription {self._options.subscription} has: {ways}",
        )

    async def _offset(self, client: Client, *, has_landed: bool) -> SpecialOffset:
        """Return where the subscription begins, or is to begin if there is none.

        One that is made anew after records landed begins at the earliest: what came in between would be lost.
        """
        wanted, name = SpecialOffset[self._options.offset.upper()], self._options.subscription
        if not has_landed or wanted is SpecialOffset.EARLIEST:
            return wanted
        if not await client.has_subscription(name):
            return SpecialOffset.EARLIEST
        is_anew = (await client.get_subscription(name)).subscription.offset == SpecialOffset.EARLIEST
        return SpecialOffset.EARLIEST if is_anew else wanted

    async def _open(self, client: Client, acks: AckQueue) -> Fetch:
        return await client.open_fetch(self._options.subscription, consumer_prefix=self._consumer_prefix, acks=acks)

    async def _land_all(self, fetches: Sequence[Fetch], sink: FrameSink, progress: Progress, *, most: int) -> None:
        interval = self._feed.commit.interval_ms / 1000
        acknowledgements = Acknowledgements(sink, self._acks, most=most, interval=interval)
        landing = Landing(acknowledgements, progress, sink)
        try:
            await until_first_ends(
                *(landing.land_fetch(number, fetch) for number, fetch in enumerate(fetches)),
                acknowledgements.run(),
                progress.run(sink, lambda: acknowledgements.pending),
            )
        finally:
            await landing.end(fetches)
            for acks, fetch in zip(self._acks, fetches, strict=True):
                if fetch.status is not None and fetch.status.action is Action.RETRY_BOUNDED:
                    acks.clear()  # an id of a shard that the subscription does not have would end every call


def window_marks(feed: HStreamFeed, *, max_unacked: int, ack_timeout: int) -> list[Frame]:
    """Return warnings about a window that is too small for the feed's commits, or a time-out too short for them.

    They show the arithmetic. Records are acknowledged after their commit, so at most ``max_unacked`` come in the time
    that a commit's interval, the commit and the acknowledgement take together.
    """
    seconds = feed.commit.interval_ms / 1000 + COMMIT_SECONDS + ANSWER_SECONDS
    marks = []
    if (rate := max_unacked / seconds) < FEW_RECORDS:
        arithmetic = (
            f"max_unacked_records {max_unacked} / {seconds:g} s to commit and acknowledge = {rate:.0f} records/s"
        )
        marks.append(mark("small window", level="warning", at_most=arithmetic))
    if ack_timeout < 3 * seconds:
        arithmetic = f"ack_timeout_seconds {ack_timeout} < 3 x {seconds:g} s to commit and acknowledge"
        marks.append(mark("short ack timeout", level="warning", comes_twice=arithmetic))
    return marks

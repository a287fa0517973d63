"""Receiver for webhooks over HTTP: the I/O around `connectors.sqlitecloud_webhooks.receiver.landing`.

A request is answered when its frames are committed; all pending requests share the next commit. An epoch lasts as long
as the receiver listens. Memory holds a bounded number of bodies; further requests wait, and are told to retry later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

import structlog
from aiohttp import web

from silverfold.conf.errors import ConfigError, SilverfoldError, SourceUnavailable
from silverfold.connectors.common.backoff import RenewedFiles
from silverfold.connectors.common.server_thread import RenewedCertificate
from silverfold.connectors.frames import FrameSink, Resume
from silverfold.connectors.sqlitecloud_webhooks.address import listening_address, table_at_source
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookFeed
from silverfold.connectors.sqlitecloud_webhooks.protocol.gate import (
    NOT_LANDED,
    TOO_LARGE,
    TOO_SLOW,
    Gate,
    Head,
    Refusal,
)
from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import Landing
from silverfold.connectors.sqlitecloud_webhooks.receiver.listening import Listening

READ_AT_ONCE: Final = 64 << 20
"""Maximum bytes of long bodies in flight to the sink; at least four of the longest are allowed."""

_SHORT: Final = 64 << 10
"""The largest body that needs no slot; slow ones are limited by the number of connections."""

_PATIENCE: Final = 10.0
"""Seconds that a stop waits for requests in progress."""


class WebhookReceiver:
    """A `connectors.frames.Receiver`."""

    def __init__(self, feed: WebhookFeed) -> None:
        self._feed, self._options = feed, feed.options
        self._gate = Gate(unquote(feed.options.path), feed.options.signing, feed.options.max_body_bytes)
        self._landing = Landing([table_at_source(feed, name).stream for name in feed.tables])
        self._files = RenewedFiles()
        self._certificate: RenewedCertificate | None = None  # over epochs: it has the last one that could be used
        self._slots = max(4, READ_AT_ONCE // feed.options.max_body_bytes)
        self._reading = asyncio.Semaphore(self._slots)
        self._reading_by_peer: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._log = structlog.get_logger("receive").bind(feed=feed.name)

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Listen until cancelled; see `connectors.frames.Receiver`.

        Raises:
            SourceUnavailable: The address cannot be listened on.
            ConfigError: The secret is missing or empty, or the certificate is unusable; SourceUnavailable if they were
                right in an earlier epoch.
        """
        with self._files.reading():
            self._secret()
            tls = self._tls()
        listening = await self._listen(sink, tls)
        try:
            await asyncio.Event().wait()
        finally:
            await listening.stop()
            if left := self._landing.end():
                sink.take(left)

    async def _listen(self, sink: FrameSink, tls: ssl.SSLContext | None) -> Listening:
        async def answer(request: web.Request) -> web.Response:
            refusal = await self._take(request, sink)
            if refusal is None:
                return web.Response(text="landed\n")
            frames = self._landing.refused(refusal, asyncio.get_running_loop().time())
            if frames:
                with contextlib.suppress(SilverfoldError):  # a failed sink ends the epoch
                    await sink.land(frames)
            return web.Response(status=refusal.status, text=f"{refusal.reason}\n", headers=dict(refusal.headers))

        app = web.Application(client_max_size=self._options.max_body_bytes)
        app.router.add_route("*", "/{anything:.*}", answer)
        address = listening_address(self._feed.address)
        listening = Listening(app, self._log, patience=_PATIENCE)
        try:
            await listening.start(address, tls)
        except OSError as error:
            await listening.stop()
            raise SourceUnavailable(f"{address} cannot be listened on: {error.strerror or error}") from error
        self._log.info("listening", address=str(address), path=self._options.path, tls=bool(self._options.certificate))
        return listening

    async def _take(self, request: web.Request, sink: FrameSink) -> Refusal | None:
        """Land a request; return its refusal, or None once it is committed."""
        head = Head(request.method, request.path, request.headers)
        try:
            secret = self._secret()
            refusal = self._gate.check_head(head, secret)
            if refusal is not None:
                return refusal
            async with asyncio.timeout(self._options.timeout):
                refusal = await self._read_and_land(request, head, secret, sink)
                if refusal is None:
                    await sink.flush()
                return refusal
        except TimeoutError:
            return NOT_LANDED
        except SilverfoldError as error:
            self._log.warning("not landed", reason=str(error), error_class=error.error_class)
            return NOT_LANDED

    async def _read_and_land(self, request: web.Request, head: Head, secret: str, sink: FrameSink) -> Refusal | None:
        async with contextlib.nullcontext() if head.is_at_most(_SHORT) else self._slot(request.remote or ""):
            body = await self._body(request)
            if isinstance(body, Refusal):
                return body
            refusal = self._gate.check_body(head, body, secret)
            if refusal is None:
                await sink.wait_for_room()  # a request cancelled here has not landed
                await sink.land(self._landing.frames(body))
            return refusal

    @contextlib.asynccontextmanager
    async def _slot(self, peer: str) -> AsyncIterator[None]:
        """Wait for a slot among the long bodies: one address has at most half of them."""
        share = self._reading_by_peer.setdefault(peer, asyncio.Semaphore(self._slots // 2))
        async with share, self._reading:
            yield

    async def _body(self, request: web.Request) -> bytes | Refusal:
        try:
            async with asyncio.timeout(self._options.timeout / 2):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TOO_LARGE
        except (TimeoutError, ConnectionError):  # after a ConnectionError nobody receives the response
            return TOO_SLOW

    def _secret(self) -> str:
        """Return the current secret, which may be rotated. Empty if none is required."""
        if self._options.secret is None:
            return ""
        secret = self._options.secret.reveal(os.environ, "options.secret")
        if not secret:
            raise ConfigError(file=f"feeds/{self._feed.name}.toml", key="options.secret", found="", allowed="a secret")
        return secret

    def _tls(self) -> ssl.SSLContext | None:
        if not self._options.certificate:
            return None
        try:
            self._certificate = self._certificate or RenewedCertificate(
                self._options.certificate, self._options.certificate_key, self._log
            )
        except OSError as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                file=f"feeds/{self._feed.name}.toml",
                key="options.certificate",
                found=self._options.certificate,
                allowed=f"a certificate and its key, in PEM: {error}",
            ) from None
        return self._certificate.context

"""Takes webhooks over HTTP: what is read around `connectors.sqlitecloud_webhooks.landing`.

A request is answered when its frames are committed, and all that wait share the next commit. An epoch lasts for as long
as the receiver listens. Memory holds a bounded number of bodies; further requests wait, and are asked to come again.
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

from conf.errors import ConfigError, SilverfoldError, SourceUnavailable
from connectors.base import Feed, FrameSink, Resume
from connectors.sqlitecloud_webhooks.address import listening_address, table_at_source
from connectors.sqlitecloud_webhooks.landing import Landing
from connectors.sqlitecloud_webhooks.listening import Listening
from connectors.sqlitecloud_webhooks.options import WebhookOptions
from connectors.sqlitecloud_webhooks.protocol import NOT_LANDED, TOO_LARGE, TOO_SLOW, Gate, Head, Refusal
from connectors.transport import load_certificate

READ_AT_ONCE: Final = 64 << 20
"""Bytes of long bodies on their way into the sink, at most: as many as fit of the longest, but four at least."""

_SHORT: Final = 64 << 10
"""Bytes of a body that waits for no other: of slow ones, no more than connections."""

_PATIENCE: Final = 10.0
"""Seconds that a stop waits for requests that have begun."""


class WebhookReceiver:
    """A `connectors.base.Receiver`."""

    def __init__(self, feed: Feed) -> None:
        assert isinstance(feed.options, WebhookOptions)
        self._feed, self._options = feed, feed.options
        self._gate = Gate(unquote(feed.options.path), feed.options.signing, feed.options.max_body_bytes)
        self._landing = Landing([table_at_source(feed, name).stream for name in feed.tables])
        self._places = max(4, READ_AT_ONCE // feed.options.max_body_bytes)
        self._reading = asyncio.Semaphore(self._places)
        self._reading_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._log = structlog.get_logger("receive").bind(feed=feed.name)

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Listen until cancelled; see `connectors.base.Receiver`.

        Raises:
            SourceUnavailable: The address cannot be listened on.
            ConfigError: The secret is not where its reference says or is empty, or the certificate cannot be used.
        """
        self._secret()
        listening = await self._listen(sink)
        try:
            await asyncio.Event().wait()
        finally:
            await listening.stop()
            if left := self._landing.end():
                sink.take(left)

    async def _listen(self, sink: FrameSink) -> Listening:
        async def answered(request: web.Request) -> web.Response:
            refusal = await self._take(request, sink)
            if refusal is None:
                return web.Response(text="landed\n")
            frames = self._landing.refused(refusal, asyncio.get_running_loop().time())
            if frames:
                with contextlib.suppress(SilverfoldError):  # a sink that has failed ends the epoch
                    await sink.land(frames)
            return web.Response(status=refusal.status, text=f"{refusal.reason}\n", headers=dict(refusal.headers))

        app = web.Application(client_max_size=self._options.max_body_bytes)
        app.router.add_route("*", "/{anything:.*}", answered)
        address = listening_address(self._feed.address)
        listening = Listening(app, self._log, patience=_PATIENCE)
        try:
            await listening.start(address, self._tls())
        except OSError as error:
            await listening.stop()
            raise SourceUnavailable(f"{address} cannot be listened on: {error.strerror or error}") from error
        self._log.info("listening", address=str(address), path=self._options.path, tls=bool(self._options.certificate))
        return listening

    async def _take(self, request: web.Request, sink: FrameSink) -> Refusal | None:
        """Land a request; return why it is refused, None once it is committed."""
        head = Head(request.method, request.path, request.headers)
        try:
            secret = self._secret()
            refusal = self._gate.of_head(head, secret)
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
        async with contextlib.nullcontext() if head.is_at_most(_SHORT) else self._place(request.remote or ""):
            body = await self._body(request)
            if isinstance(body, Refusal):
                return body
            refusal = self._gate.of_body(head, body, secret)
            if refusal is None:
                await sink.land([])  # waits for room: who gives up waiting has not been taken
                await sink.land(self._landing.frames(body))
            return refusal

    @contextlib.asynccontextmanager
    async def _place(self, peer: str) -> AsyncIterator[None]:
        """Wait for a place among the long bodies: one address has half of them at most."""
        share = self._reading_of.setdefault(peer, asyncio.Semaphore(self._places // 2))
        async with share, self._reading:
            yield

    async def _body(self, request: web.Request) -> bytes | Refusal:
        try:
            async with asyncio.timeout(self._options.timeout / 2):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TOO_LARGE
        except (TimeoutError, ConnectionError):  # the latter will not even hear it
            return TOO_SLOW

    def _secret(self) -> str:
        """Return the secret as it is now: it may be exchanged. Empty where nothing is asked for."""
        if self._options.secret is None:
            return ""
        secret = self._options.secret.reveal(os.environ)
        if not secret:
            raise ConfigError(file=f"feeds/{self._feed.name}.toml", key="options.secret", found="", allowed="a secret")
        return secret

    def _tls(self) -> ssl.SSLContext | None:
        if not self._options.certificate:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            load_certificate(context, self._options.certificate, self._options.certificate_key)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                file=f"feeds/{self._feed.name}.toml",
                key="options.certificate",
                found=self._options.certificate,
                allowed=f"a certificate and its key, in PEM: {error}",
            ) from None
        return context

"""Simulated vendor: posts the signed changes of a generated table to a feed's receiver.

The roles are reversed compared to other connectors: the source is the HTTP client. Like the vendor, it sends in order,
one request at a time, and resends what was not accepted. A change may therefore arrive twice. The first failure of each
change is logged.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Final

import aiohttp
import structlog

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.conf.text import without_secrets
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.server.orders import Orders

_TIMEOUT: Final = 60.0
"""Seconds within which a request is answered."""
_GRACE: Final = 1.0
"""Seconds that even a request at the end of the time gets: most are answered, and the change need not be in doubt."""
_AGAIN: Final = frozenset({408, 429})
"""Statuses below 500 that are worth a retry."""


class WebhookSource(Closeable):
    """Posts webhooks. Use it in one thread, as a context manager.

    Args:
        url: The target.
        signing: The proof of the secret; None sends none.
        seed: The same seed gives the same sequence of changes.
        stopped_within: Waits this many seconds before a retry; returns True to give up (`threading.Event.wait`).
        seconds: Time from now within which requests are sent again; None for ever.
        patience: Number of attempts before SourceUnavailable.
    """

    def __init__(
        self,
        url: str,
        *,
        signing: Signing | None,
        secret: str,
        seed: int,
        stopped_within: Callable[[float], bool],
        seconds: float | None = None,
        patience: int = 12,
    ) -> None:
        self._url, self._signing, self._secret = url, signing, secret
        self._stopped_within, self._patience = stopped_within, patience
        self._shown, self._log = without_secrets(url), structlog.get_logger("sqlitecloud_webhooks.server")
        self._rng = Random(seed)  # noqa: S311 - spreads waits
        self._loop = asyncio.new_event_loop()
        self._ends = math.inf if seconds is None else self._loop.time() + seconds
        self._session = self._loop.run_until_complete(self._open_session())
        self.orders = Orders(seed=seed, action=url)
        """The table, as described by all webhooks so far."""

    def change(self) -> int:
        """Change one row, and post it until accepted; return the number of changes: 1.

        Raises:
            SourceRefused: The receiver will never accept it: the secret, the path or the size is wrong.
            SourceUnavailable: All attempts failed, the time is over, or the source is stopped.
        """
        self.post(self.orders.change())
        return 1

    def post(self, body: bytes) -> None:
        """Post a body until it is accepted. Raise as `change` does."""
        backoff, why = Backoff(0.2, 10.0, self._rng), ""
        for attempt in range(self._patience):
            status, why = self._loop.run_until_complete(self._post_once(body))
            if 200 <= status < 300:
                return
            if 300 <= status < 500 and status not in _AGAIN:
                raise self._refused(str(status), why)
            if attempt == 0:
                self._log.warning("request not taken", url=self._shown, reason=why)
            left = self._left()
            if not left or self._stopped_within(min(backoff.next_wait(), left)):
                break
        raise SourceUnavailable(f"{self._shown}: {why}")

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    async def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    def _left(self) -> float:
        """Return the seconds until the time is over; 0 from then on."""
        return max(0.0, self._ends - self._loop.time())

    def _refused(self, code: str, why: str) -> SourceRefused:
        return SourceRefused(code=code, text=f"{why}, from {self._shown}")

    async def _post_once(self, body: bytes) -> tuple[int, str]:
        """Return the response's status and text; status 0 if there is none. Raise SourceRefused if none can be sent."""
        headers = {"Content-Type": "application/json"}
        if self._signing is not None:
            headers[self._signing.header] = self._signing.sign(body, self._secret)
        timeout = aiohttp.ClientTimeout(total=min(_TIMEOUT, max(_GRACE, self._left())))
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as answer:
                text = await answer.content.read(200)
                return answer.status, text.decode(errors="replace").strip() or str(answer.reason)
        except aiohttp.ClientConnectorCertificateError as error:
            why = "its certificate is not trusted; SSL_CERT_FILE may name a file of authorities that are"
            raise self._refused("untrusted", why) from error
        except ValueError as error:  # such as a host that cannot be encoded, or a header of two lines
            raise self._refused("invalid request", type(error).__name__) from error
        except TimeoutError:
            return 0, f"no answer within {timeout.total:.0f} s"
        except aiohttp.ClientError as error:
            return 0, str(error) or type(error).__name__

"""Simulated vendor: posts the signed changes of a generated table to a feed's receiver.

The roles are reversed compared to other connectors: the source is the HTTP client. Like the vendor, it sends in order,
one request at a time, and resends what was not accepted. A change may therefore arrive twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeAlias

import aiohttp

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import Op
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing

DATABASE: Final = "shop.sqlite"
TABLE: Final = "orders"
KEY: Final = "id"

_CUSTOMERS: Final = ("Ada", "Björn", "Chloé", "Dmitri", "Ève")
_NOTES: Final = (None, None, "", "gift", "ring twice")
_MOST: Final = 1_000

Row: TypeAlias = dict[str, Any]


class Orders:
    """The table's current rows.

    Args:
        action: The URL of its webhooks.
    """

    def __init__(self, *, seed: int, action: str) -> None:
        self._rng = Random(seed)  # noqa: S311 - repeatable, not secret
        self._action = action
        self._last = 0
        self.rows: dict[int, Row] = {}
        """By key."""

    def change(self) -> bytes:
        """Change one row; return the webhook's body."""
        drawn = self._rng.random()
        if not self.rows or (drawn < 0.4 and len(self.rows) < _MOST):
            return self._insert()
        key = self._rng.choice(list(self.rows))
        return self._update(key) if drawn < 0.8 else self._delete(key)

    def _insert(self) -> bytes:
        self._last += 1
        row = {KEY: self._last, **self._random_fields()}
        self.rows[self._last] = row
        return self._webhook("insert", row)

    def _update(self, key: int) -> bytes:
        drawn = self._random_fields()
        names = self._rng.sample(list(drawn), self._rng.randint(1, len(drawn)))
        changed = {name: drawn[name] for name in drawn if name in names}
        self.rows[key] = {**self.rows[key], **changed}
        return self._webhook("update", {KEY: key, **changed})

    def _delete(self, key: int) -> bytes:
        del self.rows[key]
        return self._webhook("delete", {KEY: key})

    def _random_fields(self) -> Row:
        return {
            "customer": self._rng.choice(_CUSTOMERS),
            "amount": self._rng.randrange(100, 50_000) / 100,
            "paid": self._rng.randrange(2),
            "note": self._rng.choice(_NOTES),
        }

    def _webhook(self, op: Op, sent: Row) -> bytes:
        webhook = {
            "type": op,
            "database": DATABASE,
            "table": TABLE,
            "column": list(sent),
            "data": list(sent.values()),
            "webhook": {"id": 1, "action": self._action, "options": {"type": "url"}},
        }
        return json.dumps(webhook, ensure_ascii=False).encode()


_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)
_AGAIN: Final = frozenset({408, 429})
"""Statuses below 500 that are worth a retry."""


class WebhookSource(Closeable):
    """Posts webhooks. Use it in one thread, as a context manager.

    Args:
        url: The target.
        signing: The proof of the secret; None sends none.
        seed: The same seed gives the same sequence of changes.
        stopped_within: Waits this many seconds before a retry; returns True to give up (`threading.Event.wait`).
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
        patience: int = 12,
    ) -> None:
        self._url, self._signing, self._secret = url, signing, secret
        self._stopped_within, self._patience = stopped_within, patience
        self._rng = Random(seed)  # noqa: S311 - spreads waits
        self._loop = asyncio.new_event_loop()
        self._session = self._loop.run_until_complete(self._open_session())
        self.orders = Orders(seed=seed, action=url)
        """The table, as described by all webhooks so far."""

    def change(self) -> int:
        """Change one row, and post it until accepted; return the number of changes: 1.

        Raises:
            SourceRefused: The receiver will never accept it: the secret, the path or the size is wrong.
            SourceUnavailable: All attempts failed, or the source is stopped.
        """
        self.post(self.orders.change())
        return 1

    def post(self, body: bytes) -> None:
        """Post a body until it is accepted. Raise as `change` does."""
        backoff, why = Backoff(0.2, 10.0, self._rng), ""
        for _ in range(self._patience):
            status, why = self._loop.run_until_complete(self._post_once(body))
            if 200 <= status < 300:
                return
            if 300 <= status < 500 and status not in _AGAIN:
                raise SourceRefused(code=str(status), text=why)
            if self._stopped_within(backoff.next_wait()):
                break
        raise SourceUnavailable(f"{self._url}: {why}")

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    async def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=_TIMEOUT)

    async def _post_once(self, body: bytes) -> tuple[int, str]:
        """Return the response's status and text; status 0 if there is none."""
        headers = {"Content-Type": "application/json"}
        if self._signing is not None:
            headers[self._signing.header] = self._signing.sign(body, self._secret)
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                text = await answer.content.read(200)
                return answer.status, text.decode(errors="replace").strip()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, str(error) or type(error).__name__

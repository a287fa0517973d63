"""A generated table of orders, whose changes are spelled as the vendor's webhooks."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final, TypeAlias

from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import Op

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

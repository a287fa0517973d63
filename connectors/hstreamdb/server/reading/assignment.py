"""Which consumer of a subscription gets which shard (chapter 13.7). A shard has one owner at most."""

from __future__ import annotations

from collections.abc import Iterable


class Assignment:
    """Owners of the shards of one subscription.

    Args:
        shards: The ids of its shards, in the order in which they are assigned.
    """

    def __init__(self, shards: Iterable[int]) -> None:
        self._unassigned, self._orphaned = list(shards), list[int]()
        self._owned: dict[str, list[int]] = {}
        """Shards of each consumer that has some."""
        self.idle: list[str] = []
        """Consumers that wait for a shard, in the order of their coming."""
        self.owners: dict[int, str] = {}

    def join(self, consumer: str) -> None:
        """Add a consumer. It gets a shard at the next `balance` or `assign`."""
        self.idle.append(consumer)

    def leave(self, consumer: str) -> None:
        """Remove a consumer; its shards go to others at the next `assign`."""
        if consumer in self.idle:
            self.idle.remove(consumer)
        for shard in sorted(self._owned.pop(consumer, [])):
            self._orphaned.append(shard)
            del self.owners[shard]

    def balance(self) -> None:
        """Give each idle consumer the largest shard of the most loaded one, while that has several."""
        while self.idle and self._owned:
            loaded = max(self._owned, key=self._load)
            if len(self._owned[loaded]) < 2:
                return
            shard = max(self._owned[loaded])
            self._owned[loaded].remove(shard)
            self._give(shard, self.idle.pop(0))

    def assign(self) -> None:
        """Give shards without owner to idle consumers, then to the least loaded ones."""
        for shards in (self._unassigned, self._orphaned):
            while shards and (self.idle or self._owned):
                consumer = self.idle.pop(0) if self.idle else min(self._owned, key=self._load)
                self._give(shards.pop(0), consumer)

    def _load(self, consumer: str) -> tuple[int, str]:
        return len(self._owned[consumer]), consumer

    def _give(self, shard: int, consumer: str) -> None:
        self._owned.setdefault(consumer, []).append(shard)
        self.owners[shard] = consumer

"""The base of a table (`pipelines.upkeep.bases`) as a fold begins with it: rows, deletes, and versions.

Where the source's order counts, they are turned back into changes: later ones may belong before them. Bronze no longer
has the frames that a base is made of, so its own rows are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from silverfold.conf.errors import StoreUnavailable
from silverfold.conf.names import caseless
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan
from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import newest_note
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.beginnings import base_misfit, base_needed
from silverfold.pipelines.verifying.compared_rows import LeftOut, degraded_rows, read_silver
from silverfold.pipelines.verifying.table_fold import Row

START: Final = "__START_AT"
END: Final = "__END_AT"
POSITION: Final = "_position"


@dataclass(frozen=True)
class BaseRows:
    """A table's base at one version.

    Args:
        floor: Position from which bronze was retained before the base was read.
        rows: Its rows, those that fail the table's rules included.
        deletes: Its tombstones; None if it has none.
        history: Its versions; None if it has none.
        degraded: Keys of rows that may lack late changes.
        partial: Rows may be made of partial updates.
        misfit: Why a table cannot begin with it, with the way on (`pipelines.upkeep.beginnings.base_misfit`); None if
            it can.
    """

    position: int
    floor: int
    rows: SilverRows
    deletes: SilverRows | None
    history: SilverRows | None
    degraded: frozenset[Key]
    partial: bool
    misfit: str | None

    @property
    def since(self) -> int:
        """Position from which bronze has to have every frame."""
        return max(self.position + 1, self.floor)

    @property
    def names(self) -> list[str]:
        """Names of the source's columns, in the letter case that the table has."""
        return [name for name in self.rows.names if name != POSITION]

    def rows_within(self, keys: Sequence[str], within: KeySpan) -> dict[Key, Row]:
        """Return the rows in a span of the source's keys, by key. Raises StoreUnavailable."""
        own = self._own(keys)
        return {_key(row, own): row for row in _rows(self.rows, own, within)}

    def log_rows(self) -> list[Row]:
        """Return the rows of a changelog. Raises StoreUnavailable."""
        return _rows(self.rows, (), EVERY_KEY)

    def versions_within(self, keys: Sequence[str], within: KeySpan) -> list[tuple[Key, Row]]:
        """Return the versions of the rows in a span, each with its row's key. Raises StoreUnavailable."""
        own = self._own(keys)
        return [] if self.history is None else [(_key(row, own), row) for row in _rows(self.history, own, within)]

    def changes_within(self, keys: Sequence[str], within: KeySpan) -> list[ReferenceChange]:
        """Return changes in the source's order that lead to the rows in a span. Raises StoreUnavailable."""
        rows = _rows(self.rows, own := self._own(keys), within)
        inserts = [ReferenceChange("insert", 0, _key(row, own), _cells(row), sequence=row[POSITION]) for row in rows]
        return [*self._deletes_within(keys, within), *inserts]

    def version_changes_within(self, keys: Sequence[str], within: KeySpan) -> list[ReferenceChange]:
        """Return changes in the source's order that lead to the versions of the rows in a span.

        A version that ends is deleted, which does nothing where the next one begins. Raises StoreUnavailable.
        """
        versions = self.versions_within(keys, within)
        deletes = [ReferenceChange("delete", 0, key, sequence=row[END]) for key, row in versions if row[END]]
        inserts = [ReferenceChange("insert", 0, key, _cells(row), sequence=row[START]) for key, row in versions]
        return [*self._deletes_within(keys, within), *deletes, *inserts]

    def left_out(
        self,
        keys: Sequence[str],
        before: Iterable[ReferenceChange],
        later: Iterable[ReferenceChange],
        *,
        versions: bool = False,
    ) -> LeftOut:
        """Return the rows of which a fold that begins with the base does not know all columns.

        Those the base does not know itself, and those of partial updates with a later change that is older than the
        row: which columns it still sets is not known, until a whole row or a delete of the key comes. Versions from
        before that lack the change all the same.

        Args:
            before: As `changes_within` returns them, or `version_changes_within`.
            versions: Whether the rows have versions, and these are meant.
        """
        if not self.partial and not self.degraded:
            return LeftOut(keys, self.degraded)
        applied: dict[Key, str] = {}
        for change in before:
            applied[change.key] = max(applied.get(change.key, ""), change.sequence or "")
        late = set(self.degraded)
        for change in sorted(later, key=lambda change: change.sequence or ""):
            known = applied.get(change.key, "")
            if (change.sequence or "") < known:
                late.add(change.key)
            elif not versions and self._is_whole(change) and (change.sequence or "") > known:
                late.discard(change.key)
        lasting = () if self.history is None else self.degraded  # versions that lack a change are never mended
        return LeftOut(keys, frozenset(late.union(lasting)))

    def _is_whole(self, change: ReferenceChange) -> bool:
        return change.op != "update" or set(map(caseless, self.names)) <= set(map(caseless, change.row))

    def _deletes_within(self, keys: Sequence[str], within: KeySpan) -> Iterator[ReferenceChange]:
        own = self._own(keys)
        for row in [] if self.deletes is None else _rows(self.deletes, own, within):
            yield ReferenceChange("delete", 0, _key(row, own), sequence=row[POSITION])

    def _own(self, keys: Sequence[str]) -> list[str]:
        own_names = {caseless(name): name for name in self.rows.names}
        return [own_names[caseless(name)] for name in keys]


def read_base(places: Places, connector: Connector, feed: Feed, table: str) -> BaseRows | None:
    """Return the base that a table's fold begins with; None if it begins with bronze. Raises StoreUnavailable."""
    floor = retained_from(places.bronze(feed.name), feed.name)
    if base_needed(places, connector, feed, table) is None:
        return None
    base = places.base(table)
    found = read_silver(base, feed.name, table)
    if found is None:
        raise StoreUnavailable(f"{base.own(feed.name)}: somebody has removed it")
    version = found.rows.version
    deletes = companion(base, feed.name, table, "tombstones", at=version)
    history = companion(base, feed.name, table, "history", at=version)
    note = newest_note(open_table(base.silver(feed.name, table)), until=version)
    return BaseRows(
        found.position,
        floor,
        found.rows,
        None if deletes.committed is None else SilverRows(base.tombstones(feed.name, table), deletes.committed),
        None if history.committed is None else SilverRows(base.history(feed.name, table), history.committed),
        degraded_rows(base, connector, feed, table, version).keys,
        partial=note is not None and note.partial,
        misfit=base_misfit(places, connector, feed, table),
    )


def _rows(table: SilverRows, keys: Sequence[str], within: KeySpan) -> list[Row]:
    found: list[Row] = table.table(keys, within).to_pylist()
    return found


def _key(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    return tuple(row[name] for name in names)


def _cells(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (START, END, POSITION)}

"""Small histories of a database, with all that may break: what has landed comes to what the database holds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from tests.support.sqlitecloud.history import KEYS, Alters, Cut, Dies, History, Restarts, Sql, Step, Transacts

HISTORIES = max(1, settings().max_examples // 20)

ids = st.integers(-1, 4)
names = st.sampled_from(["a", "b", "ü;'", "z"])
anything = st.sampled_from([None, 0, 1, -1, 2.5, "1", "1.0", "", 'ü\0;"', 2**62, -(2**63), 1e300, 0.1, float("inf")])
numbers = st.sampled_from([None, 1, -2.5, 1e300, 3.0])
blobs = st.sampled_from([None, b"", b"\0\xff"])


def sql(text: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Sql]]:
    """One statement with drawn values."""
    return st.tuples(*values).map(lambda drawn: [(text, drawn)])


def swapped(ids: tuple[int, int]) -> list[Sql]:
    """Two rows change places by way of a third key."""
    one, other = ids
    return [("UPDATE one SET id = ? WHERE id = ?", move) for move in ((-9, one), (one, other), (other, -9))]


statements = st.one_of(
    sql("INSERT INTO one(id, a, n) VALUES (?, ?, ?)", ids, names, anything),
    sql("INSERT OR REPLACE INTO one(id, a, n, x) VALUES (?, ?, ?, ?)", ids, names, anything, numbers),
    sql("INSERT INTO one(id, n) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET n = excluded.n", ids, anything),
    sql("UPDATE one SET n = ? WHERE id <= ?", anything, ids),
    sql("UPDATE one SET x = x / 3 WHERE id = ?", ids),
    sql("UPDATE OR REPLACE one SET a = ? WHERE id = ?", names, ids),
    sql("UPDATE one SET id = ? WHERE id = ?", ids, ids),
    sql("UPDATE OR REPLACE one SET id = ? WHERE id = ?", ids, ids),
    st.tuples(ids, ids).map(swapped),
    sql("DELETE FROM one WHERE id = ?", ids),
    sql("DELETE FROM one"),
    sql("INSERT OR IGNORE INTO two(k, v, nr, b) VALUES (?, ?, ?, ?)", names, anything, ids, blobs),
    sql("REPLACE INTO two(k, v, nr) VALUES (?, ?, ?)", names, anything, ids),
    sql("UPDATE two SET v = ?, b = ? WHERE nr = ?", anything, blobs, ids),
    sql("UPDATE OR REPLACE two SET nr = nr + 1 WHERE k = ?", names),
    sql("UPDATE OR IGNORE two SET k = ? WHERE nr = ?", names, ids),
    sql("DELETE FROM two WHERE nr = ?", ids),
    sql("DELETE FROM two"),
    sql("INSERT OR REPLACE INTO three(name, one, pv) VALUES (?, ?, ?)", names, ids, anything),
    sql("UPDATE three SET sqlite_type = ?, one = ? WHERE name = ?", anything, ids, names),
    sql("UPDATE three SET name = ? WHERE name = ?", names, names),
    sql("DELETE FROM three WHERE name <> ?", names),
)
transactions = st.builds(
    Transacts,
    st.integers(0, 1),
    st.lists(statements, min_size=1, max_size=4).map(lambda lists: [each for some in lists for each in some]),
    st.sampled_from([True, True, True, False]),
)
steps: st.SearchStrategy[Step] = st.one_of(
    *[transactions] * 6,
    st.sampled_from([Cut(all=False), Cut(all=True), *map(Alters, KEYS)]),
    st.builds(Dies, st.booleans(), transactions, transactions),
    st.builds(Restarts, transactions),
)
behaviours = st.builds(
    ServerOptions,
    capture=st.sampled_from(CaptureMode),
    dialect=st.builds(Dialect, st.sampled_from(Vocabulary), st.sampled_from(["changed", "always"])),
    pacing=st.sampled_from([Pacing.JOINED, Pacing.SPLIT]),
)
options = st.fixed_dictionaries(
    {
        "blob": st.just("base64"),
        "canary_seconds": st.just(0.5),
        "settle_seconds": st.just(0.1),
        "fence": st.sampled_from([True, True, False]),
        "max_rows": st.sampled_from([0, 2]),
        "page_rows": st.sampled_from([0, 2]),
    }
)


@settings(max_examples=HISTORIES, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to shrink takes minutes
@given(behaviours, options, st.lists(steps, min_size=10, max_size=40))
def test_whatever_happens_to_a_database_and_its_receiver_what_has_landed_comes_to_what_it_holds(
    server_options: ServerOptions, options: Mapping[str, Any], steps: Sequence[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder, History(Path(folder), server_options, options) as history:
        history.live(steps)

        assert history.at_rest() == {}

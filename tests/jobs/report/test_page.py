"""The page of a report: what it says, that it is safe, whole without a network, and small."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

from silverfold.conf.errors import StoreUnavailable
from silverfold.jobs.report.page import page_of
from silverfold.jobs.report.readings import MOST_CHARTED, MOST_CUTS, ChartedTable, FeedReading
from silverfold.pipelines.reading.connection_log import Epoch
from silverfold.pipelines.reading.status import (
    Fault,
    FeedStatus,
    LastCut,
    ReceiverState,
    ReceiverStatus,
    TableState,
    TableStatus,
)
from silverfold.pipelines.verifying.verify_log import Verified
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import cuts

NOW = BEGAN + timedelta(hours=1)
NASTY = '</td><script>alert("1")</script>&\'\u00fc\u202e\n'
ESCAPED = "&lt;/td&gt;&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&amp;&#39;\u00fc\\u202e\\n"


def table(name: str = "quotes", **changes: Any) -> TableStatus:
    found: dict[str, Any] = {
        "table": name,
        "state": TableState.NOT_BUILT,
        "fault": None,
        "epoch": None,
        "landed_position": None,
        "applied_position": None,
        "lag_updates": 0,
        "lag_seconds": 0.0,
        "rows": None,
        "last_cut": None,
    }
    return TableStatus(**found | changes)


def built(name: str = "quotes", **changes: Any) -> TableStatus:
    """Return a table with a cut."""
    row = cuts(1)[0]
    last = LastCut(position=2, **{name: getattr(row, name) for name in LastCut.model_fields if name != "position"})
    return table(name, **{"state": TableState.SYNCED, "rows": 1234, "last_cut": last, **changes})


def feed(*tables: TableStatus, **changes: Any) -> FeedStatus:
    found: dict[str, Any] = {
        "feed": "market",
        "connector": "deephaven",
        "epoch": None,
        "landed_position": None,
        "landed_at": None,
        "receiver": None,
        "tables": tables,
    }
    return FeedStatus(**found | changes)


def reading(status: FeedStatus, **changes: Any) -> FeedReading:
    return replace(FeedReading(NOW, status, (), (), (), {each.table: {} for each in status.tables}, ()), **changes)


def page(status: FeedStatus, *, warehouse: str = "/lake", **changes: Any) -> str:
    return page_of(reading(status, **changes), warehouse)


class Words(HTMLParser):
    """Collects the text of a page, and fails for tags that do not pair."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self._open = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Pairs with itself."""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.found.append(data)


def words(shown: str) -> str:
    """Return the text of a page, with single spaces."""
    read = Words()
    read.feed(shown)
    read.close()
    assert not read._open
    return " ".join(" ".join(read.found).split())


def test_a_feed_that_was_never_received_says_what_begins_it():
    shown = words(page(feed(table())))

    for sentence in (
        "0 of 1 synced",
        "never connected",
        "none yet",
        "The feed has never received anything: silverfold receive market connects it.",
        "No cut has been applied to any table yet: silverfold build market applies what has landed.",
        "Its tables have no rules",
        "No verification is recorded: silverfold verify market compares silver with what landed.",
        "No faults.",
    ):
        assert sentence in shown


def test_a_held_table_shows_its_fault_and_what_to_do():
    fault = Fault(error_class="UNDECODABLE_FRAME", reason="ends at byte 40", position=117, since=BEGAN)
    held = table(state=TableState.HELD, fault=fault, lag_updates=3, lag_seconds=90.0)
    shown = page(feed(held, landed_at=NOW - timedelta(seconds=5), landed_position=120, epoch=2))

    assert "quotes: held at position 117: UNDECODABLE_FRAME: ends at byte 40" in words(shown)
    assert "<code>silverfold quarantine retry market quotes</code>" in shown
    assert "1 held or stopped" in words(shown)
    assert "3 updates, 1 min 30 s" in words(shown)
    assert "5.0 s ago position 120, epoch 2" in words(shown)
    assert "No faults" not in shown


def test_epochs_show_how_long_they_lasted_the_gaps_and_why_they_ended():
    second = BEGAN + timedelta(minutes=20)
    epochs = (
        Epoch(7, BEGAN, BEGAN + timedelta(minutes=5), "reset by peer", "SOURCE_UNAVAILABLE"),
        Epoch(8, second, second + timedelta(minutes=1)),
        Epoch(9, BEGAN + timedelta(minutes=30), None),
    )
    open_now = ReceiverStatus(state=ReceiverState.CONNECTED, since=epochs[-1].opened_at, reason=None, error_class=None)
    shown = words(page(feed(table(), receiver=open_now, epoch=9), epochs=epochs))

    assert "3 newest epochs of 9" in shown
    assert "9 1 May 2024 00:30:00 open 9 min 0 s -" in shown
    assert "8 1 May 2024 00:20:00 1 min 0 s 15 min 0 s its receiver reported no end" in shown
    assert "7 1 May 2024 00:00:00 5 min 0 s - SOURCE_UNAVAILABLE: reset by peer" in shown


def test_lost_positions_and_what_cannot_be_read_are_told():
    fault = StoreUnavailable("lake/trades: its log is damaged; else `silverfold rebuild market trades` makes it anew")
    shown = page(feed(table(), lost_positions=((5, 9),)), faults=(fault,))

    assert "bronze lost positions 5 to 9" in shown
    assert "cannot be read now: lake/trades: its log is damaged; else <code>silverfold rebuild" in shown


def test_cuts_are_charted_and_what_is_left_out_is_told():
    few, many = (ChartedTable(built(name), cuts(3, table=name), n) for name, n in (("few", 3), ("many", 12_345)))
    shown = words(page(feed(built("few"), built("many"), built("other"), table("new")), charted=(few, many)))

    assert "few synced · all 3 cuts" in shown
    assert "many synced · the newest 3 of 12,345 cuts" in shown
    assert shown.count("Lag: from landing to silver") == 2
    assert "1 more tables have cuts and no charts here" in shown
    assert "Not built, or without a listed cut: new." in shown


def test_rules_are_listed_with_the_rows_that_failed_them():
    status = feed(table(), table("trades"))
    assert "No row has failed any of the 2 rules" in words(page(status, failures={"quotes": {"a": 0, "b": 0}}))
    rules = {"quotes": {"a": 2, "b": 0}, "trades": {f"r{n:03}": 5_000 - n for n in range(60)}}
    shown = words(page(status, failures=rules))
    assert "rows that failed it, in all cuts trades r000 5,000 trades r001 4,999" in shown
    assert "11 more rules that fewer rows failed are left out." in shown


def verified(name: str, verdict: str, **changes: Any) -> Verified:
    counts: dict[str, Any] = dict.fromkeys(("missing_rows", "extra_rows", "different_cells"), 0)
    found = {"at": BEGAN, "against": "bronze", "reason": None, "position": 9, "delta_version": 1, "found_rows": 1234}
    return Verified(table=name, verdict=verdict, **counts | found | changes)


def test_the_last_verify_is_told():
    equal = page(feed(table()), verified=(verified("quotes", "equal"), verified("trades", "not_built")))
    assert "Last verify equal 1 h 0 min ago" in words(equal)
    found = (verified("quotes", "equal"), verified("trades", "different", missing_rows=7, reason="it is held"))
    shown = words(page(feed(table()), verified=found))
    assert "Last verify 1 not equal" in shown
    assert "trades bronze different 1,234 7 0 0 9 1 May 2024 00:00:00 it is held" in shown


def nasty() -> str:
    """Return a page with a nasty text wherever the feed, its peer or its settings have a say."""
    fault = Fault(error_class="UNDECODABLE_FRAME", reason=NASTY, position=1, since=BEGAN)
    held = built(f"a{NASTY}", state=TableState.HELD, fault=fault, warning=NASTY, built_otherwise=NASTY)
    closed = ReceiverStatus(state=ReceiverState.CLOSED, since=BEGAN, reason=NASTY, error_class=NASTY)
    return page(
        feed(held, table(f"b{NASTY}"), feed=f"c{NASTY}", connector=f"d{NASTY}", receiver=closed, epoch=1),
        warehouse=f"e{NASTY}",
        faults=(StoreUnavailable(f"f{NASTY}"),),
        epochs=(Epoch(1, BEGAN, BEGAN, f"g{NASTY}", f"h{NASTY}"),),
        charted=(ChartedTable(held, cuts(1, notes={f"failed.{NASTY}": 1}), 1),),
        failures={f"i{NASTY}": {f"j{NASTY}": 1}},
        verified=(verified(f"k{NASTY}", "equal", reason=f"l{NASTY}"),),
    )


def test_texts_of_others_are_escaped_and_on_one_line():
    shown = nasty()

    for each in "abcdefghijkl":
        assert f"{each}{ESCAPED}" in shown, each
    assert "<script" not in shown
    assert "\u202e" not in shown
    words(shown)


def test_a_long_text_is_cut_off():
    shown = page(feed(table()), faults=(StoreUnavailable("x" * 100_000),))
    assert f"{'x' * 600}…" in shown
    assert "x" * 601 not in shown


def test_the_page_asks_no_host_for_anything():
    shown = nasty()
    for reference in ("http:", "https:", "://", "src=", "href", "url(", "@import", "<link"):
        assert reference not in shown, reference
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in shown


def test_the_largest_page_has_about_a_megabyte():
    per_table = MOST_CUTS // MOST_CHARTED
    rows = [replace(row, updated=n, deleted=1) for n, row in enumerate(cuts(per_table))]
    charted = tuple(ChartedTable(built(f"t{n}"), rows, 10 * per_table) for n in range(MOST_CHARTED))
    shown = page(feed(*(each.status for each in charted)), charted=charted)
    assert 500_000 < len(shown.encode()) < 1_100_000

"""A feed's whole way, wherever its Spark and its tables are: everything is a command in a process of its own."""

from __future__ import annotations

import pytest

from tests.cluster.market import FEED, ROWS, Market

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.xdist_group("deployments")]

ROWS_NOW = """
SELECT count(*) AS n, sum(Qty) AS total, (SELECT max(Qty) FROM quotes__aside) AS kept_out,
(SELECT count(*) FROM versions__history WHERE Qty IN (-5, 7000) AND __END_AT IS NULL) AS written FROM quotes
"""


@pytest.mark.parametrize("market", ["cluster on disk", "connect on disk"], indirect=True)
def test_a_feed_goes_its_whole_way(market: Market) -> None:
    market.receive()
    first = market.report("build", FEED)
    assert market.take_over() == 4
    assert "receive/market is another's now, stop one of the two" in market.log.read_text()
    market.change()
    second = market.report("build", FEED)
    assert [[table["cuts"] > 0 for table in built["feeds"][0]["tables"]] for built in (first, second)] == [
        [True] * 2
    ] * 2

    assert market.verdicts() == {"quotes": "equal", "versions": "equal", "versions__history": "equal"}
    status = market.report("status", FEED)["feeds"][0]["tables"]
    assert [(table["state"], table["rows"]) for table in status] == [("synced", ROWS - 1), ("synced", ROWS)]
    assert market.query(ROWS_NOW) == [[ROWS - 1, 3_004_006, -5, 2]]

    assert market.report("rebuild", FEED, "versions")["rebuilt"]
    assert market.report("maintain", FEED)["complete"]
    assert market.verdicts() == {"quotes": "equal", "versions": "equal", "versions__history": "equal"}
    market.stop("receive")

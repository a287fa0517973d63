"""What the decoder of a feed says before any message is looked at."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import SchemaDrift
from silverfold.connectors.base import Cut, Feed
from silverfold.connectors.sbe.decoder.decoder import SbeDecoder
from tests.support.sbe.feed import options, table


def test_a_template_that_is_gone_stops_the_table_by_its_name():
    tables = {"trades": table(template="Trade"), "old": table(template="Ping")}
    decoder = SbeDecoder(Feed("stream", "sbe", "127.0.0.1:1", options(), tables))
    cut = Cut("99", 1, -1, 3, ((0, 3),), (1,), (3,), replaces=False)

    with pytest.raises(SchemaDrift, match=r"^old: template 99 cannot be read any more") as raised:
        decoder.row_type(None, cut, tables["old"])

    assert raised.value.table == "old"

"""Helpers for tests of feeds, and of what is made of silver tables. Needs ``silverfold[testing]``.

::

    from silverfold.testing import assert_silver_equals, build_recorded

    def test_last_prices(spark, warehouse):
        market = build_recorded(spark, "my", "market", "tests/recorded/market", warehouse)
        assert_silver_equals(spark, market, "quotes", [{"Sym": "AAPL", "Bid": 11}])

======================  =============================================================================================
`assert_silver_equals`  compares a silver table, its history or its side table with rows
`record`                copies the frames that a feed has landed into a small folder, to commit beside tests
`build_recorded`        builds the silver tables of a feed from such a folder: a `SilverFeed`
`simulated`             receives a feed from a source in this process, and builds it: a `SimulatedFeed`
======================  =============================================================================================

The fixtures ``spark`` and ``warehouse`` come with pytest's plugin (`silverfold.jobs.testing.plugin`). Importing this
module does not load Spark.
"""

from silverfold.jobs.testing.recorded import build_recorded, record
from silverfold.jobs.testing.silver import SilverFeed, assert_silver_equals
from silverfold.jobs.testing.simulated import SimulatedFeed, simulated

__all__ = ["SilverFeed", "SimulatedFeed", "assert_silver_equals", "build_recorded", "record", "simulated"]

"""The tables of the demo: every column type, with nulls and NaN."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.jobs.demo.tables import TABLES


def test_the_demos_tables_have_every_column_type_with_nulls_and_nan() -> None:
    made = {name: table.filled(200, Random(1)) for name, table in TABLES.items()}
    assert {kind.name for table in made.values() for kind in table.columns.values()} == set(TYPES)
    for name, table in made.items():
        for column in table.columns.keys() - set(TABLES[name].keys):
            assert None in values_of(table, column)
    assert any(value is not None and math.isnan(value) for value in values_of(made["trades"], "Price"))
    assert values_of(made["baskets"], "Id") == list(range(1, 201))


def values_of(table: LiveTable, column: str) -> list[Any]:
    return [row[column] for row in table.rows().values()]

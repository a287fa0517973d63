"""Gives each test a copy of what a module's fixture has built: Spark takes seconds to build it."""

from __future__ import annotations

import shutil
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from tests.support.building import Built
from tests.support.deephaven.landed_history import LandedHistory


class BuiltMarket:
    """A feed that was landed and built, in cuts of any size. Subclasses set the attributes."""

    spark: SparkSession
    warehouse: Path
    built: Built
    history: LandedHistory

    def copied_to(self, warehouse: Path, **own: Any) -> Self:
        """Return the same in another, empty warehouse, with some other attributes. Changes of the copy are its own."""
        shutil.copytree(self.warehouse, warehouse, dirs_exist_ok=True)
        twin = copy(self)
        twin.warehouse, twin.history = warehouse, deepcopy(self.history)
        twin.built = Built(self.spark, warehouse, self.built.feed.tables)
        vars(twin).update(own)
        return twin

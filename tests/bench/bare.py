"""A hand-written MERGE with Delta's default settings, as the baseline of a cut.

It is no lower bound: it writes deletion vectors, and a checkpoint every tenth commit, which a cut of a small table does
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.sql import path_table
from tests.bench.silver import timed


@dataclass
class BareMerge:
    """A copy of a silver table, into which complete rows are merged by key."""

    session: SparkSession
    silver: str
    folder: Path
    key: str

    @classmethod
    def beside(cls, spark: SparkSession, silver: str, folder: Path, key: str) -> Self:
        """Copy a table to a folder.

        Args:
            silver: Path of the table.
        """
        made = cls(own_session(spark), silver, folder, key)
        made.session.conf.set("spark.sql.adaptive.enabled", "false")
        made.session.sql(
            f"CREATE TABLE {path_table(made.path)} USING DELTA TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
            f"AS SELECT * FROM {path_table(silver)}"
        ).collect()
        return made

    @property
    def path(self) -> str:
        """Path of the copy."""
        return f"{self.folder}/copy"

    def seconds(self, keys: Sequence[int]) -> float:
        """Merge the silver rows with these keys; return the seconds it took."""
        net = f"{self.folder}/net"
        self._silver().where(F.col(self.key).isin(list(keys))).write.format("delta").mode("overwrite").save(net)
        self.session.read.format("delta").load(net).createOrReplaceTempView("net")
        statement = (
            f"MERGE INTO {path_table(self.path)} AS t USING net AS s ON t.{self.key} = s.{self.key} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return timed(lambda: self.session.sql(statement).collect())

    def _silver(self) -> DataFrame:
        return self.session.read.format("delta").load(self.silver)

"""Rows in Arrow batches, and the steps that decoders apply to them: in Spark, or in this process for small cuts.

A decoder's step is one function over batches. A cut of a few frames is decoded in this process: a Spark job with a
Python worker would cost more than the work itself. The result is handed to Spark as rows of the plan itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from silverfold.transforms.changes import from_arrow

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Picklable; called once for each partition, with its batches."""


class ArrowRows(ABC):
    """Rows, and the operations on them on the way to change rows."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Preferred number of parts for `repartition`."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """Number of rows; None if only a Spark job could find it."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Size of the rows in memory, in bytes; None like `count`."""

    @abstractmethod
    def where(self, column: str, value: str) -> ArrowRows:
        """Return the rows whose column equals the value."""

    @abstractmethod
    def after(self, column: str, value: int) -> ArrowRows:
        """Return the rows whose column is greater than the value."""

    @abstractmethod
    def run(self, step: Step, kind: pa.Schema, *columns: str) -> ArrowRows:
        """Return the result of a step over the given columns of the rows; over all columns if none is named.

        Args:
            kind: Schema of the step's result.
        """

    @abstractmethod
    def repartition(self, part: str, *order: str) -> ArrowRows:
        """Return the rows partitioned so that no part is split, each partition sorted.

        Args:
            part: Column that numbers the parts from 0.
            order: Columns by which the rows of a partition are sorted.
        """

    @abstractmethod
    def dataframe(self) -> DataFrame:
        """Return the rows as a DataFrame. Runs no job."""

    @abstractmethod
    def collect(self) -> list[Mapping[str, Any]]:
        """Return the rows as a list; for few rows only."""


@dataclass(frozen=True)
class InSpark(ArrowRows):
    """Rows of a DataFrame: every step is lazy."""

    rows: DataFrame

    @property
    def parts(self) -> int:
        """See `ArrowRows.parts`."""
        return int(self.rows.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)

    @property
    def count(self) -> None:
        """See `ArrowRows.count`."""
        return None

    @property
    def size(self) -> None:
        """See `ArrowRows.size`."""
        return None

    def where(self, column: str, value: str) -> InSpark:
        """See `ArrowRows.where`."""
        return InSpark(self.rows.where(F.col(column) == value))

    def after(self, column: str, value: int) -> InSpark:
        """See `ArrowRows.after`."""
        return InSpark(self.rows.where(F.col(column) > value))

    def run(self, step: Step, kind: pa.Schema, *columns: str) -> InSpark:
        """See `ArrowRows.run`."""
        return InSpark((self.rows.select(*columns) if columns else self.rows).mapInArrow(step, from_arrow_schema(kind)))

    def repartition(self, part: str, *order: str) -> InSpark:
        """See `ArrowRows.repartition`."""
        split = getattr(self.rows, "repartitionById", self.rows.repartition)  # Spark 4.0 knows partitions by hash only
        return InSpark(split(self.parts, F.col(part)).sortWithinPartitions(*order))

    def dataframe(self) -> DataFrame:
        """See `ArrowRows.dataframe`."""
        return self.rows

    def collect(self) -> list[Mapping[str, Any]]:
        """See `ArrowRows.collect`."""
        return [row.asDict(recursive=True) for row in self.rows.collect()]


@dataclass(frozen=True)
class InProcess(ArrowRows):
    """Rows in this process: every step runs at once, in one part."""

    session: SparkSession
    rows: pa.Table

    @property
    def parts(self) -> int:
        """See `ArrowRows.parts`."""
        return 1

    @property
    def count(self) -> int:
        """See `ArrowRows.count`."""
        return int(self.rows.num_rows)

    @property
    def size(self) -> int:
        """See `ArrowRows.size`."""
        return int(self.rows.nbytes)

    def where(self, column: str, value: str) -> InProcess:
        """See `ArrowRows.where`."""
        return InProcess(self.session, self.rows.filter(pc.equal(self.rows[column], value)))

    def after(self, column: str, value: int) -> InProcess:
        """See `ArrowRows.after`."""
        return InProcess(self.session, self.rows.filter(pc.greater(self.rows[column], value)))

    def run(self, step: Step, kind: pa.Schema, *columns: str) -> InProcess:
        """See `ArrowRows.run`."""
        selected = self.rows.select(list(columns)) if columns else self.rows
        batches = step(iter(selected.combine_chunks().to_batches()))
        return InProcess(self.session, pa.Table.from_batches(list(batches), kind))

    def repartition(self, part: str, *order: str) -> InProcess:
        """See `ArrowRows.repartition`."""
        return InProcess(self.session, self.rows.sort_by([(name, "ascending") for name in order]))

    def dataframe(self) -> DataFrame:
        """See `ArrowRows.dataframe`."""
        return from_arrow(self.session, self.rows, from_arrow_schema(self.rows.schema))

    def collect(self) -> list[Mapping[str, Any]]:
        """See `ArrowRows.collect`."""
        found: list[Mapping[str, Any]] = self.rows.to_pylist()
        return found

"""Rows in Arrow batches, and the steps by which decoders make others of them: in Spark, or here for a few.

A decoder's step is one function over batches. A cut of a few frames is decoded by it in this process: a Spark job
with a Python worker costs more than the work. What comes of it is handed to Spark as rows of the plan itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from transforms.changes import from_arrow

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Picklable; one call for each partition, whose batches it is given."""


class ArrowRows(ABC):
    """Some rows, and what may be done with them on the way to change rows."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Into how many parts rows are best divided for `together`."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """How many rows there are; None where only a Spark job would tell."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many bytes the rows take in memory; None as of `count`."""

    @abstractmethod
    def where(self, column: str, value: str) -> ArrowRows:
        """Return the rows whose column has the value."""

    @abstractmethod
    def after(self, column: str, value: int) -> ArrowRows:
        """Return the rows whose column has a greater value."""

    @abstractmethod
    def run(self, step: Step, kind: pa.Schema, *columns: str) -> ArrowRows:
        """Return what a step makes of these columns of the rows; of all where none is named.

        Args:
            kind: Schema of what the step yields.
        """

    @abstractmethod
    def together(self, part: str, *order: str) -> ArrowRows:
        """Return the rows so that each partition holds whole parts, in some order.

        Args:
            part: Column that numbers the parts from 0.
            order: Columns by which the rows of a partition are sorted.
        """

    @abstractmethod
    def dataframe(self) -> DataFrame:
        """Return the rows for Spark to work on. Runs no job."""

    @abstractmethod
    def collect(self) -> list[Mapping[str, Any]]:
        """Return the rows, which are few."""


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

    def together(self, part: str, *order: str) -> InSpark:
        """See `ArrowRows.together`."""
        return InSpark(self.rows.repartitionById(self.parts, F.col(part)).sortWithinPartitions(*order))

    def dataframe(self) -> DataFrame:
        """See `ArrowRows.dataframe`."""
        return self.rows

    def collect(self) -> list[Mapping[str, Any]]:
        """See `ArrowRows.collect`."""
        return [row.asDict(recursive=True) for row in self.rows.collect()]


@dataclass(frozen=True)
class InProcess(ArrowRows):
    """Rows of this process: every step is done at once, in one part."""

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
        taken = self.rows.select(list(columns)) if columns else self.rows
        try:
            made = list(step(iter(taken.combine_chunks().to_batches())))
        except Exception as error:  # as from a Python worker of Spark: a fault of one table's step ends no build
            raise PythonException(type(error).__name__) from error
        return InProcess(self.session, pa.Table.from_batches(made, kind))

    def together(self, part: str, *order: str) -> InProcess:
        """See `ArrowRows.together`."""
        return InProcess(self.session, self.rows.sort_by([(name, "ascending") for name in order]))

    def dataframe(self) -> DataFrame:
        """See `ArrowRows.dataframe`."""
        return from_arrow(self.session, self.rows, from_arrow_schema(self.rows.schema))

    def collect(self) -> list[Mapping[str, Any]]:
        """See `ArrowRows.collect`."""
        found: list[Mapping[str, Any]] = self.rows.to_pylist()
        return found

"""Applies one cut to one silver table: what its changes come to, in one commit with the position.

What a table keeps (`connectors.base.Keeps`) says which columns of ours it has beside the source's:

===========  ==========================================================================================================
``state``    ``_position`` and, for positional sources, the positional key
``changes``  ``_op``, ``_position``, the positional key, ``_last_row_key`` and ``_present``; only ever added to
``rows``     ``_position`` and ``_ordinal``, the row's number inside its frame; only ever added to
===========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from conf.errors import SnapshotNeeded
from connectors.base import Keeps
from pipelines.folding import Folding
from pipelines.judging import rows_to_write
from pipelines.versions import keep_versions
from pipelines.work import Work
from transforms.changes import DELETE, INSERT, SNAPSHOT, struct_type, typed_as
from transforms.evolve import check_names, drift, follow
from transforms.expectations import FAILED, Rule, check_rules, guarded
from transforms.explain import EXPECTS
from transforms.fold import check_key
from transforms.merge import OP, POSITION, PRESENT, VACATED, append, create_empty, merge, net_rows, replace
from transforms.rekey import by_keys, unique_rows
from transforms.sql import quoted
from transforms.whole import whole_rows

LAST_KEY = "_last_row_key"
"""In a log of changes: the last key of a removed range, whose first key is the positional key."""

ORDINAL = "_ordinal"
"""Of rows that are only ever added: the row's number inside its frame, from 0."""

_RESERVED = (OP, POSITION, PRESENT, VACATED, EXPECTS, LAST_KEY, FAILED, "_row_key")


def apply_cut(work: Work, row: StructType, *, judges: bool = False, looks: bool = False) -> None:
    """Write the cut. Runs Spark jobs; safe to repeat.

    Args:
        row: The source's columns at the end of the cut.
        judges: Rows are known to fail rules: look before writing, not once the writing has failed.
        looks: The same of changes that nothing explains.

    Raises:
        ExpectationFailed: A row fails a rule. Unless ``judges``, of any action: apply it again with ``judges``.
        Unexplained: Nothing explains a change. Unless ``looks``, whatever the settings: apply it again with ``looks``.
        ApplyError: The cut cannot be applied; the table stands as it was. Subclasses say why.
    """
    keeps = work.target.connector.keeps(work.target.table)
    reserved = (*_RESERVED, ORDINAL) if keeps is Keeps.ROWS else _RESERVED
    check_names(row, reserved=reserved, keys=work.target.table.keys, table=work.target.name)
    check_key(struct_type(work.changes, "key"), table=work.target.name)
    columns = _follow(work, _COLUMNS[keeps](work, row), makes=keeps is Keeps.STATE and not work.cut.replaces)
    if keeps is not Keeps.STATE:
        rows = _log_rows(work) if keeps is Keeps.CHANGES else _added_rows(work)
        append(_chosen(rows, columns), work.target.place.url, recorded=work.recorded(work.target.app_id))
        return
    work.changes, folding = typed_as(work.changes, columns), None
    if work.target.connector.net:
        if work.target.table.keeps_history:
            keep_versions(work, columns)
        net = net_rows(work.changes)
    else:
        folding = Folding(work, looks=looks)
        net = folding.net()
    _judge_and_write(work, net, folding, columns, judges=judges)


def _follow(work: Work, wanted: StructType, *, makes: bool) -> StructType:
    """Let the table have the columns wanted, and return those it has then.

    Makes it where there is none, if it is to be merged into.
    """
    target = work.target
    current = target.read(target.place)
    if current is not None:
        drifted = drift(current.schema, wanted, table=target.name)
        guesses = target.connector.partial and not target.upsert and not work.cut.replaces
        if drifted.added and guesses and work.before >= 0:
            raise SnapshotNeeded(column=drifted.added[0].name, table=target.name)
        follow(target.session, target.place.url, drifted)
    elif makes:
        create_empty(target.session, wanted, target.sql_name)
    return wanted if work.current is None else work.current.schema


def _judge_and_write(work: Work, net: DataFrame, folding: Folding | None, columns: StructType, *, judges: bool) -> None:
    """Write the rows the table's rules let stand: looked at before, where some are known to fail, else as written."""
    rules = [Rule(name, each.condition, each.action) for name, each in work.target.table.expect.items()]
    check_rules(work.target.session, columns, rules, table=work.target.name)
    waiting = None if folding is None else folding.waiting
    looks = work.aside is not None or waiting is not None or (bool(rules) and judges)
    rows = _rows(work, net, whole=looks)
    if looks:
        _write(work, rows_to_write(work, rows, rules, waiting), columns, [])
    else:
        partial = folding is None or folding.partial
        _write(work, rows if partial else rows.drop(PRESENT), columns, rules)


def _rows(work: Work, net: DataFrame, *, whole: bool) -> DataFrame:
    """Return the net rows by the table's keys; where it is asked for, whole."""
    keys, upsert = work.keys, work.target.upsert
    if work.cut.replaces:
        there = net.where(F.col(OP).isin(INSERT, SNAPSHOT))
        return unique_rows(there, keys=keys) if work.target.table.keys else there
    assert work.truth is not None, "what is merged into has been made"
    if work.survey.wide_ranges:
        net = _with_ranges(net, work.truth, _ranges(work), *work.identity)
    if work.target.table.keys and work.identity:
        return by_keys(net, work.truth, keys=keys, identity=work.identity[0], upsert=upsert)
    return whole_rows(net, work.truth, keys=keys, upsert=upsert) if whole else net


def _write(work: Work, rows: DataFrame, columns: StructType, rules: Sequence[Rule]) -> None:
    target, keys, recorded = work.target, work.keys, work.recorded(work.target.app_id)
    conditions = [rule.condition for rule in rules]
    if work.cut.replaces:
        there = guarded(rows.where(F.col(OP) != DELETE), rules)
        if work.before < 0:
            append(_chosen(there, columns), target.place.url, recorded=recorded)
        else:
            replace(there, target.sql_name, keys=keys, recorded=recorded)
    elif target.table.keys and work.identity:
        merge(rows, target.sql_name, keys=keys, recorded=recorded, identity=work.identity[0], rules=conditions)
    else:
        bounds = work.survey.bounds if work.aside is None else {}  # rows kept aside may lie outside
        merge(
            rows,
            target.sql_name,
            keys=keys,
            recorded=recorded,
            upsert=target.upsert,
            bounds=bounds,
            rules=conditions,
        )


def _ranges(work: Work) -> DataFrame:
    return work.target.decoder.removed_ranges(work.frames, work.context, work.cut, work.target.table)


def _columns_of_state(work: Work, row: StructType) -> StructType:
    position = StructField(POSITION, StringType() if work.target.connector.sequenced else LongType())
    return StructType([*(StructField(name, LongType()) for name in work.identity), *row, position])


def _columns_of_log(work: Work, row: StructType) -> StructType:
    names = [OP, POSITION, *work.identity, LAST_KEY]
    kinds = [StringType(), *(LongType() for _ in names[1:])]
    log = [StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return StructType([*log, StructField(PRESENT, ArrayType(StringType())), *row])


def _columns_of_rows(work: Work, row: StructType) -> StructType:
    return StructType([StructField(POSITION, LongType()), StructField(ORDINAL, IntegerType()), *row])


_COLUMNS = {Keeps.STATE: _columns_of_state, Keeps.CHANGES: _columns_of_log, Keeps.ROWS: _columns_of_rows}


def _added_rows(work: Work) -> DataFrame:
    """Return the rows as they are to be added; all depends on ``op``, which fails where a frame cannot be decoded."""
    position = F.when(F.col("op") == INSERT, F.col("frame_seq"))
    return work.changes.select(position.alias(POSITION), F.col("ordinal").alias(ORDINAL), "row.*")


def _log_rows(work: Work) -> DataFrame:
    net = net_rows(work.changes).withColumn(LAST_KEY, F.lit(None).cast("long"))
    (row_key,) = work.identity
    removed = _ranges(work).select(
        F.lit(DELETE).alias(OP),
        F.col("frame_seq").alias(POSITION),
        F.col("first_key").alias(row_key),
        F.col("last_key").alias(LAST_KEY),
    )
    return net.unionByName(removed, allowMissingColumns=True)


def _chosen(rows: DataFrame, columns: StructType) -> DataFrame:
    return rows.select([F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in columns])


def _with_ranges(net: DataFrame, current: DataFrame, ranges: DataFrame, row_key: str) -> DataFrame:
    """Add a delete for every row that stands in a removed range and that the net rows do not speak of."""
    inside = F.col(row_key).between(F.col("first_key"), F.col("last_key"))
    removed = (
        current.select(row_key)
        .join(F.broadcast(ranges), inside)
        .groupBy(row_key)
        .agg(F.max("frame_seq").alias(POSITION))
        .withColumn(OP, F.lit(DELETE))
    )
    return net.unionByName(removed.join(net.select(row_key), row_key, "left_anti"), allowMissingColumns=True)

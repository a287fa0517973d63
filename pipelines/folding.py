"""Folds the changes of a cut onto what stands: one net row per key, and what the changes say that nothing explains.

For connectors whose decoder does not fold. Where the order of the source is not the landing order, changes that come
late lose, deletes are remembered, and an update whose row is not there waits for it among the rows kept aside.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from conf.errors import ApplyError, Unexplained
from pipelines.store import largest, open_table
from pipelines.work import Work
from transforms.aside import REASONS, SINCE, UNEXPLAINED
from transforms.changes import UPDATE, as_struct, cached, complete, struct_type
from transforms.explain import SAID, UPDATES_WITHOUT_ROW, letter, unexplained
from transforms.fold import fold
from transforms.history import Moments, keep_history
from transforms.merge import OP, POSITION, PRESENT, net_rows
from transforms.moves import resolve
from transforms.standing import FEW, newer, standing
from transforms.tombstones import bury
from transforms.tombstones import read as read_tombstones


class Folding:
    """The folding of one cut."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._target, self._cut, self._survey = work.target, work.cut, work.survey
        self._by_sequence = work.target.connector.sequenced
        self.waiting: DataFrame | None = None
        """Net rows that wait for their row; None when none do."""

    def net(self) -> DataFrame:
        """Return net rows; write history and tombstones on the way. Runs Spark jobs; safe to repeat.

        Raises:
            Unexplained: A change is of nothing, or begins a row that stands, and the settings do not let that pass.
        """
        if self._by_sequence and self._survey.moves:
            raise ApplyError(
                "a source whose order is its sequence cannot move rows to other keys", table=self._target.name
            )
        told = self._told()
        folded = self._work.kept.enter_context(cached(self._fold(self._in_time(told))))
        self._explain(folded)
        if self._target.keeps_history:
            self._keep_history(told)
        if not self._by_sequence:
            return net_rows(folded)
        net = net_rows(folded, position="sequence")
        self._bury(net)
        return net

    def _told(self) -> DataFrame:
        """Return the changes and those that wait for their row, kept where they are looked at more than once."""
        work = self._work
        told = work.changes if work.waiting is None else work.changes.unionByName(self._heard_before(work.waiting))
        more_than_once = self._target.keeps_history or self._survey.moves or self._by_sequence
        return work.kept.enter_context(cached(told)) if more_than_once else told

    def _heard_before(self, waiting: DataFrame) -> DataFrame:
        """Return rows that wait as the changes they came from."""
        key, row = (struct_type(self._work.changes, side) for side in ("key", "row"))
        return complete(
            waiting.select(
                F.col(SINCE).alias("frame_seq"),
                F.lit(0).alias("ordinal"),
                F.lit(UPDATE).alias("op"),
                as_struct(key).alias("key"),
                as_struct(row).alias("row"),
                F.col(PRESENT).alias("present"),
                F.col(POSITION).alias("sequence"),
            )
        )

    def _fold(self, told: DataFrame) -> DataFrame:
        """Fold by the cheapest way that what was counted allows."""
        replaces, upsert = self._cut.replaces, self._target.upsert
        heard_before = self._cut.after  # what waited since an earlier cut was told of then
        letters = letter(settled=heard_before if self._cut.settled is None else self._cut.settled)
        if self._survey.moves:
            stood = None if replaces else self._work.truth
            return resolve(told, stood, self._work.kept, upsert=upsert, replaces=replaces, letter=letters)
        whole = not self._survey.partial and self._work.waiting is None
        return fold(told, by_sequence=self._by_sequence, upsert=upsert, whole=whole, replaces=replaces, letter=letters)

    def _in_time(self, told: DataFrame) -> DataFrame:
        """Leave out changes that come late. There are none where the cut begins after all that was applied."""
        if not self._by_sequence or self._cut.replaces or self._work.truth is None or not self._may_be_late():
            return told
        return newer(told, self._standing(told), self._buried(told))

    def _may_be_late(self) -> bool:
        first, places = self._survey.first_sequence, (self._target.place, self._target.tombstones)
        applied = [largest(place, POSITION) for place in places if open_table(place) is not None]
        return first is None or self._work.aside is not None or any(at is None or first <= at for at in applied)

    def _buried(self, told: DataFrame) -> DataFrame | None:
        if open_table(self._target.tombstones) is None:
            return None
        key = as_struct(struct_type(told, "key")).alias("key")
        return read_tombstones(self._target.session, self._target.tombstones.url).select(key, POSITION)

    def _standing(self, keys: DataFrame) -> DataFrame:
        assert self._work.truth is not None
        bounds = self._survey.bounds if self._work.waiting is None else {}  # what waits may lie outside
        return standing(self._work.truth, keys, bounds=bounds, few=self._survey.changes <= FEW)

    def _explain(self, folded: DataFrame) -> None:
        """Note how much nothing explains, and what waits. Runs one Spark job."""
        marked = self._marked(folded)
        counts = unexplained(F.col(SAID), F.col("stood"), upsert=self._target.upsert)
        line = marked.agg(*(F.sum(count).alias(name) for name, count in counts.items())).first()
        assert line is not None
        found = {name: line[name] for name in counts if line[name]}
        if found and self._target.table.on_unexplained == "error":
            told = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in found.items())
            raise Unexplained(told, table=self._target.name)
        self._work.notes.update(found)
        if self._by_sequence and (UPDATES_WITHOUT_ROW in found or self._work.waiting is not None):
            lonely = marked.where(~F.col("stood") & (F.col("op") == UPDATE))
            self.waiting = (
                net_rows(lonely, position="sequence").withColumn(REASONS, F.array(F.lit(UNEXPLAINED))).drop(OP)
            )

    def _marked(self, folded: DataFrame) -> DataFrame:
        """Tell of each key whether a row stood there before the cut; none counts where the cut replaces all."""
        if self._cut.replaces or self._work.truth is None:
            return folded.withColumn("stood", F.lit(False))
        found = self._standing(folded).select("key", F.lit(True).alias("found"))
        return folded.join(found, "key", "left").withColumn("stood", F.col("found").isNotNull())

    def _keep_history(self, told: DataFrame) -> None:
        target = self._target
        tombstones = target.read(target.tombstones)
        keep_history(
            told,
            target.history.url,
            recorded=self._work.recorded(f"history/{target.feed.name}/{target.name}"),
            moments=Moments(self._by_sequence, self._cut.settled),
            upsert=target.upsert,
            moves=self._survey.moves > 0,
            tombstones=tombstones,
        )

    def _bury(self, net: DataFrame) -> None:
        """Remember the deletes."""
        target, work = self._target, self._work
        recorded = work.recorded(f"tombstones/{target.feed.name}/{target.name}")
        settled = target.decoder.settled(work.context, work.cut, target.table)
        bury(net, target.tombstones.url, keys=work.keys, recorded=recorded, settled=settled)

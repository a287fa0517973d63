"""Folds the changes of a cut onto what stands: one net row per key, and what the changes say that nothing explains.

For connectors whose decoder does not fold. Where the order of the source is not the landing order, changes that come
late lose, deletes are remembered, and an update whose row is not there waits for it among the rows kept aside.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from conf.errors import ApplyError, Unexplained
from pipelines.cuts import history_id, tombstones_id
from pipelines.facts import Facts, facts_of
from pipelines.store import largest, open_table
from pipelines.work import Work
from transforms.aside_columns import REASONS, SINCE, UNEXPLAINED
from transforms.changes import UPDATE, as_struct, cached, complete, struct_type
from transforms.explain import EXPECTS, SAID, UPDATES_WITHOUT_ROW, expects, letter, unexplained
from transforms.fold import fold
from transforms.history import Moments, keep_history
from transforms.merge import OP, POSITION, PRESENT, net_rows
from transforms.moves import resolve
from transforms.standing import FEW, newer, standing
from transforms.tombstones import bury
from transforms.tombstones import read as read_tombstones


class Folding:
    """The folding of one cut.

    Args:
        looks: Look up what stands before anything is written. Without, the write itself fails where a change is
            unexplained, and costs no look at the table where all are explained.
    """

    def __init__(self, work: Work, *, looks: bool) -> None:
        self._work = work
        self._target, self._cut = work.target, work.cut
        self._by_sequence = work.target.connector.sequenced
        self._looks = looks or self._nothing_stood or self._must_look()
        self.waiting: DataFrame | None = None
        """Net rows that wait for their row; None when none do."""
        self.partial = True
        """Net rows may be partial updates."""

    def net(self) -> DataFrame:
        """Return net rows; write history and tombstones on the way. Runs Spark jobs; safe to repeat.

        With the column `transforms.explain.EXPECTS` where it is for the write to find what is unexplained.

        Raises:
            Unexplained: A change is of nothing, or begins a row that stands, and the settings do not let that pass.
        """
        told = self._told()
        folded = self._folded(told)
        self._explain(folded)
        if self._target.table.keeps_history:
            self._keep_history(told)
        others = [] if self._looks else [F.col(EXPECTS)]
        if not self._by_sequence:
            return net_rows(folded, *others)
        net = net_rows(folded, *others, position="sequence")
        self._bury(net)
        return net

    def _told(self) -> DataFrame:
        """Return the changes and those that wait for their row, kept where they are looked at more than once."""
        work = self._work
        told = work.changes if work.waiting is None else work.changes.unionByName(self._heard_before(work.waiting))
        more_than_once = self._target.table.keeps_history or self._by_sequence
        return self._kept(told) if more_than_once else told

    def _folded(self, told: DataFrame) -> DataFrame:
        """Fold, and learn what is to be known of the cut. If it is not what was hoped for, fold again, with more care.

        Hoped for are changes that move no row, and none that come late.
        """
        folded = self._kept(self._fold(told))
        facts = self._facts(folded)
        if facts.moves:
            folded = self._kept(self._resolved(told))
        elif self._is_late(facts):
            folded = self._kept(self._fold(newer(told, self._standing(told), self._buried(told))))
            facts = self._facts(folded)
        self._moves = facts.moves
        self._looks = self._looks or facts.moves > 0 or facts.never_explained > 0
        self._onto_nothing = facts.onto_nothing
        self.partial = facts.partial > 0 or facts.moves > 0
        return folded

    def _facts(self, folded: DataFrame) -> Facts:
        """Return the facts, and keep them for those who write. Runs one Spark job."""
        facts = facts_of(folded, upsert=self._target.upsert, onto_nothing=self._nothing_stood)
        if facts.unreadable:
            raise ApplyError("a frame cannot be decoded", table=self._target.name)
        found = self._work.survey
        self._work.survey = found._replace(changes=facts.changes, bounds=facts.bounds)
        return facts

    def _must_look(self) -> bool:
        return self._target.table.on_unexplained == "error" or self._work.aside is not None

    def _kept(self, rows: DataFrame) -> DataFrame:
        return self._work.kept.enter_context(cached(rows))

    def _heard_before(self, waiting: DataFrame) -> DataFrame:
        """Return rows that wait as the changes they came from, but those whose row cannot come any more."""
        settled = self._settled()
        living = waiting if settled is None else waiting.alias("t").where(f"NOT ({settled})")
        key, row = (struct_type(self._work.changes, side) for side in ("key", "row"))
        return complete(
            living.select(
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
        """Fold by the cheaper way where no update can be partial."""
        folded = fold(
            told,
            by_sequence=self._by_sequence,
            upsert=self._target.upsert,
            whole=not self._target.connector.partial and self._work.waiting is None,
            replaces=self._cut.replaces,
            letter=self._letters(),
            counts=True,
        )
        return folded.withColumn(EXPECTS, expects(F.col(SAID), upsert=self._target.upsert))

    def _resolved(self, told: DataFrame) -> DataFrame:
        """Fold a cut some of whose changes move rows to other keys."""
        if self._by_sequence:
            raise ApplyError(
                "a source whose order is its sequence cannot move rows to other keys", table=self._target.name
            )
        replaces, upsert = self._cut.replaces, self._target.upsert
        stood = None if replaces else self._work.truth
        told = self._kept(told)
        return resolve(told, stood, self._work.kept, upsert=upsert, replaces=replaces, letter=self._letters())

    def _letters(self) -> Column:
        heard_before = self._cut.after  # what waited since an earlier cut was told of then
        return letter(settled=heard_before if self._cut.settled is None else self._cut.settled)

    def _is_late(self, facts: Facts) -> bool:
        """Tell whether changes may come late. None does where the cut begins after all that was applied."""
        if not self._by_sequence or self._cut.replaces or self._work.truth is None:
            return False
        places = (self._target.place, self._target.tombstones)
        applied = [largest(place, POSITION) for place in places if open_table(place) is not None]
        first = facts.first_sequence
        return first is None or self._work.aside is not None or any(at is None or first <= at for at in applied)

    def _buried(self, told: DataFrame) -> DataFrame | None:
        if open_table(self._target.tombstones) is None:
            return None
        key = as_struct(struct_type(told, "key")).alias("key")
        return read_tombstones(self._target.session, self._target.tombstones.url).select(key, POSITION)

    def _standing(self, keys: DataFrame) -> DataFrame:
        assert self._work.truth is not None
        bounds = self._work.survey.bounds if self._work.waiting is None else {}  # what waits may lie outside
        return standing(self._work.truth, keys, bounds=bounds, few=self._work.survey.changes <= FEW)

    def _explain(self, folded: DataFrame) -> None:
        """Note how much nothing explains, and what waits. Where it looks at what stood, runs one Spark job."""
        if not self._looks:
            return
        found = self._onto_nothing
        if not self._nothing_stood or self._moves:
            counts = unexplained(F.col(SAID), F.col("stood"), upsert=self._target.upsert)
            line = self._marked(folded).agg(*(F.sum(count).alias(name) for name, count in counts.items())).first()
            assert line is not None
            found = {name: line[name] for name in counts if line[name]}
        if found and self._target.table.on_unexplained == "error":
            told = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in found.items())
            raise Unexplained(told, table=self._target.name)
        self._work.notes.update(found)
        if self._by_sequence and (UPDATES_WITHOUT_ROW in found or self._work.waiting is not None):
            lonely = self._marked(folded).where(~F.col("stood") & (F.col("op") == UPDATE))
            self.waiting = (
                net_rows(lonely, position="sequence").withColumn(REASONS, F.array(F.lit(UNEXPLAINED))).drop(OP)
            )

    @property
    def _nothing_stood(self) -> bool:
        """No row of before the cut counts."""
        return self._cut.replaces or self._work.before < 0

    def _marked(self, folded: DataFrame) -> DataFrame:
        """Tell of each key whether a row stood there before the cut; none counts where the cut replaces all."""
        if self._nothing_stood:
            return folded.withColumn("stood", F.lit(False))
        found = self._standing(folded).select("key", F.lit(True).alias("found"))
        return folded.join(found, "key", "left").withColumn("stood", F.col("found").isNotNull())

    def _keep_history(self, told: DataFrame) -> None:
        target = self._target
        tombstones = target.read(target.tombstones)
        keep_history(
            told,
            target.history.url,
            recorded=self._work.recorded(history_id(target.feed.name, target.name)),
            moments=Moments(self._by_sequence, self._cut.settled),
            upsert=target.upsert,
            moves=self._moves > 0,
            tombstones=tombstones,
        )

    def _bury(self, net: DataFrame) -> None:
        """Remember the deletes."""
        target, work = self._target, self._work
        recorded = work.recorded(tombstones_id(target.feed.name, target.name))
        bury(net, target.tombstones.url, keys=work.keys, recorded=recorded, settled=self._settled())

    def _settled(self) -> str | None:
        work = self._work
        return work.target.decoder.settled(work.context, work.cut, work.target.table)

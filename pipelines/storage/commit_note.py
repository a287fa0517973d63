"""The metadata of a silver commit about its cut; all records kept elsewhere are derived from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from silverfold.pipelines.storage.row_settings import RowSettings


@dataclass(frozen=True, kw_only=True)
class CommitNote:
    """What a silver commit records about its cut: JSON in the commit's user metadata.

    Args:
        updates: Complete updates of the source in the cut.
        ignored: Changes that had no effect by rule, such as an update of a row that does not exist.
        landed_at: When the cut's last frame was received; None if unknown.
        notes: Counts to report, by name.
        settings: The settings it was built with, see `pipelines.storage.row_settings`; None in notes older than this
            field.
        rules: A digest of the table's rules; None in notes older than this field.
        source_position: Source position of the cut's last frame; None if the source gives none.
        history: Version of the history that counts from then on; None for none, `NOT_RECORDED` in notes older than this
            field.
        tombstones: The same for its tombstones.
        aside: The same for its side table.
        frames: State of quarantined frames, by position as text (`pipelines.holding.quarantine_log`): for a cut those
            it left out, for a rebuild all it knew; None in notes older than this field.
        partial: Partial updates were applied to the table, by this cut or one before: only for a source-ordered source.
        by: The builder or rebuild that applied it, to distinguish it from others that apply the same cut.
    """

    feed: str
    table: str
    epoch: int
    first_position: int
    last_position: int
    replaced: bool
    updates: int
    ignored: int = 0
    landed_at: datetime | None = None
    notes: Mapping[str, int] | None = None
    settings: RowSettings | None = None
    rules: str | None = None
    source_position: str | None = None
    history: int | None = None
    tombstones: int | None = None
    aside: int | None = None
    frames: Mapping[str, str] | None = None
    partial: bool = False
    by: str = ""

    def to_json(self) -> str:
        """Return the text for ``userMetadata``; `CommitNote.from_json` reads it back."""
        return json.dumps(asdict(self), sort_keys=True, default=datetime.isoformat)

    @staticmethod
    def from_json(text: object) -> CommitNote | None:
        """Return the note, or None if the text is not one: other commits have user metadata too."""
        try:
            found = json.loads(str(text))
            landed_at = found.get("landed_at")
            known = {
                "history": None if found.get("keeps_history") is False else NOT_RECORDED,
                "tombstones": NOT_RECORDED,
                "aside": _LOST if found.get("keeps_aside") else None,
                **{name: found[name] for name in _NOTE if name in found},
                "landed_at": None if landed_at is None else datetime.fromisoformat(landed_at),
            }
            return CommitNote(**known)
        except (AttributeError, TypeError, ValueError):
            return None


REBUILT = "rebuilt"
"""Note of the cut with which a rebuild replaces all others."""

HISTORY_BEGINS = "history_begins"
"""Note of the same cut: the position from which it built the history, if it restarted it."""

NOT_RECORDED = -1
"""Version of a companion table where the silver commit does not record one: the newest."""

_LOST = -2
"""The same for a side table in an earlier format, which no longer counts: there is no such version."""

_NOTE = tuple(field.name for field in fields(CommitNote))

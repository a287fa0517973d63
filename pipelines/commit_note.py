"""What a silver commit says about its cut, in the commit itself: all that is kept elsewhere is derived from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from pipelines.row_settings import RowSettings


@dataclass(frozen=True, kw_only=True)
class CommitNote:
    """What a silver commit says about its cut: JSON in the commit's user metadata.

    Args:
        updates: Whole updates of the source in the cut.
        ignored: Changes that changed nothing by rule, such as an update of a row that does not exist.
        landed_at: When the cut's last frame was received; None when not known.
        notes: Counts worth telling, by name.
        settings: With which it was built, see `pipelines.row_settings`; None in notes of before there were any.
        rules: A digest of the table's rules; None in notes of before that was said.
        source_position: Where the source says the cut's last frame was; None where it says nothing.
        history: Version of the table's history that counts from then on; None for none, `NOT_TOLD` in notes of before.
        tombstones: The same of its tombstones.
        aside: The same of its side table.
        frames: What became of quarantined frames, by position as text (`pipelines.quarantine_log`): of a cut those it left out,
            of a rebuild all that it knew of; None in notes of before that was said.
        by: Which builder or rebuild applied it, to be told from others that apply the same cut.
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
    by: str = ""

    def to_json(self) -> str:
        """Return the text for ``userMetadata``; `CommitNote.from_json` reads it back."""
        return json.dumps(asdict(self), sort_keys=True, default=datetime.isoformat)

    @staticmethod
    def from_json(text: object) -> CommitNote | None:
        """Return the note, or None when the text is not one: other commits have user metadata too."""
        try:
            found = json.loads(str(text))
            landed_at = found.get("landed_at")
            known = {
                "history": None if found.get("keeps_history") is False else NOT_TOLD,
                "tombstones": NOT_TOLD,
                "aside": _LOST if found.get("keeps_aside") else None,
                **{name: found[name] for name in _NOTE if name in found},
                "landed_at": None if landed_at is None else datetime.fromisoformat(landed_at),
            }
            return CommitNote(**known)
        except (AttributeError, TypeError, ValueError):
            return None


NOT_TOLD = -1
"""Version of a table beside a silver table whose commit does not say which one counts: the newest."""

_LOST = -2
"""The same of rows that were kept aside in another way, and count no more: there is no such version."""

_NOTE = tuple(field.name for field in fields(CommitNote))

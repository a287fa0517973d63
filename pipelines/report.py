"""The base of results that are returned to programs, and printed by ``--json``: frozen, with stable names."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Report(BaseModel):
    """A result, or a part of one. Immutable; ``model_dump(mode="json")`` gives what ``--json`` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

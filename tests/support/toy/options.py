"""The toy's settings models: a feed's ``options`` and its ``tables``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from silverfold.conf.model import Strict, Table
from silverfold.connectors.base import Feed


class ToyOptions(Strict):
    """A feed's ``options``.

    ``address`` is empty: a toy is its own source.
    """

    lines: int = Field(ge=1)
    """Number of lines that the source has."""


class ToyTable(Table):
    """One silver table.

    Lines are only ever added.
    """

    letters: Literal["upper", "lower"] = "lower"
    """Case of the letters: ``upper`` or ``lower``."""


ToyFeed: TypeAlias = Feed[ToyOptions, ToyTable]

"""Makes the engine take small work for large: what it does with many frames, rows and bytes is tried with few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from silverfold.pipelines import store
from silverfold.pipelines.landing import bronze


@contextmanager
def as_if_large(*, wanted: bool = True) -> Iterator[None]:
    """Let no cut be small inside the block, and no table, if that is wanted."""
    if not wanted:
        yield
        return
    with patch.object(bronze, "_FEW_BYTES", -1), patch.object(store, "_SMALL", -1):
        yield

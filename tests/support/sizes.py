"""Makes the engine treat small work as large, to test the paths for many frames, rows and bytes with few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from silverfold.pipelines import store
from silverfold.pipelines.landing import bronze


@contextmanager
def as_if_large(*, wanted: bool = True) -> Iterator[None]:
    """Inside the block, treat every cut and table as large, if ``wanted``."""
    if not wanted:
        yield
        return
    with patch.object(bronze, "_FEW_BYTES", -1), patch.object(store, "_SMALL", -1):
        yield

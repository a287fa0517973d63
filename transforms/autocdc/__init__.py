"""AUTO CDC for Delta tables: `apply_changes`."""

from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.merge import Recorded

__all__ = ["Recorded", "apply_changes"]

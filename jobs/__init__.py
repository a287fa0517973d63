"""The commands: one file per job, each also ``python -m jobs.<name>``; `jobs.cli` mounts them all."""

from importlib.util import find_spec
from pathlib import Path

_CONF = find_spec("conf")
if _CONF is None or Path(__file__).parent.parent / "conf" not in map(Path, _CONF.submodule_search_locations or ()):
    # Without our own conf there are no error classes to raise; jobs.packages checks the other packages.
    raise ImportError(
        f"{_CONF and (_CONF.origin or _CONF.name)} hides silverfold's package conf: start from another folder, "
        "or give silverfold an environment of its own"
    )

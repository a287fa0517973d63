"""Folds foreign change feeds into silver Delta tables with Spark.

For notebooks and orchestrators::

    import silverfold

    project = silverfold.open_project("my")
    project.build("market")
    quotes = project.read("quotes", at=1200)

======================  =============================================================================================
`open_project`          a `Project`: build, follow (a `Following`), verify, status, read, check, maintain, rebuild
`apply_changes`         AUTO CDC: a DataFrame of changes, applied to a Delta table; `Recorded` names the batch
`decode_sbe`            SBE messages of a DataFrame, decoded; `unreadable_sbe` has those that cannot be, and why
`SilverfoldError`       the base of all errors that are raised on purpose
======================  =============================================================================================

These names are imported when they are first used: ``import silverfold`` loads neither Spark nor a connector. Results
are documented beside what makes them: `pipelines.applying.run`, `pipelines.verifying.verify`,
`pipelines.reading.status`, `pipelines.quality.check`, `pipelines.upkeep`.

The commands are `silverfold.jobs`. Further, for programs:

- `silverfold.connectors.wire.sbe`: SBE schemas and messages without Spark;
- ``silverfold.connectors.<name>.client``: clients of what the connectors read;
- `silverfold.testing`: helpers for tests of feeds, and of what is made of silver tables;
- the connectors' ``server`` rooms: sources in this process, for tests;
- `silverfold.connectors`: how to add a connector.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silverfold.conf.errors import SilverfoldError
    from silverfold.connectors.sbe.decoder.rows import decode as decode_sbe
    from silverfold.connectors.sbe.decoder.rows import errors as unreadable_sbe
    from silverfold.pipelines.project import Following, Project, open_project
    from silverfold.transforms.autocdc import Recorded, apply_changes

__all__ = [
    "Following",
    "Project",
    "Recorded",
    "SilverfoldError",
    "apply_changes",
    "decode_sbe",
    "open_project",
    "unreadable_sbe",
]

_HOMES = {
    "Following": "silverfold.pipelines.project:Following",
    "Project": "silverfold.pipelines.project:Project",
    "Recorded": "silverfold.transforms.autocdc:Recorded",
    "SilverfoldError": "silverfold.conf.errors:SilverfoldError",
    "apply_changes": "silverfold.transforms.autocdc:apply_changes",
    "decode_sbe": "silverfold.connectors.sbe.decoder.rows:decode",
    "open_project": "silverfold.pipelines.project:open_project",
    "unreadable_sbe": "silverfold.connectors.sbe.decoder.rows:errors",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'silverfold' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

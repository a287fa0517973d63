"""``silverfold simulate``: run a connector's simulated source, to try feeds without the foreign system.

A simulator prints its address, changes its tables for the given time, and then serves them unchanged until it is
interrupted or terminated; it ends with exit code 0. Each connector brings its own, which is imported when it is called.
"""

from __future__ import annotations

from typing import Any

import typer

from silverfold.conf.errors import ConfigError
from silverfold.connectors.base import Connector
from silverfold.connectors.registry import CONNECTORS, find_connector, hyphenated_name, missing_extra
from silverfold.jobs.cli import LazyGroup, add_lazily, as_command, main_of

app = typer.Typer(cls=LazyGroup, no_args_is_help=True)


@app.callback()
def simulate() -> None:
    """Run a connector's own source, and keep its tables changing."""
    from silverfold.jobs.common.logs import start_logs  # noqa: PLC0415 - --help needs no logs

    start_logs("info")


def _add(connector: Connector) -> None:
    name = hyphenated_name(connector)

    def load() -> Any:
        if missing := missing_extra(connector):
            raise ConfigError(file="command line", key="COMMAND", found=name, allowed=missing)
        return as_command(name, connector.simulator())

    add_lazily(app, name, connector.simulator_summary, load)


for _each in CONNECTORS:
    _add(find_connector(_each))


if __name__ == "__main__":
    main_of("simulate")

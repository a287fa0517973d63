"""Metrics for Prometheus: of feeds and tables from the store, of a receiver from its process; alerts, a dashboard."""

from __future__ import annotations

from importlib.util import find_spec

from silverfold.conf.errors import ConfigError


def require_extra(key: str, found: object) -> None:
    """Raise ConfigError, which names the extra to install, unless prometheus_client is here.

    Args:
        key: The command or the option that needs it.
    """
    if find_spec("prometheus_client") is None:
        allowed = "one whose packages are here: install silverfold[metrics]"
        raise ConfigError(file="command line", key=key, found=found, allowed=allowed)

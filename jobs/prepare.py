"""``silverfold prepare``: prepare a machine or an image for jobs that start Spark."""

from __future__ import annotations

import typer
from rich.console import Console

from silverfold.conf.errors import ConfigError
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import invocation


def prepare(ctx: typer.Context) -> None:
    """Fetch Delta's JARs, and archive the classes that Spark loads, so that it starts in half the time.

    Worth it on a machine that runs scheduled jobs, and in an image, which needs no network for JARs then. The archive
    takes some 200 MB in `~/.cache/silverfold` (`$XDG_CACHE_HOME/silverfold`) and is used by every job of this user
    that starts Spark; it can be removed at any time. Run this again after an update of Java, Spark or silverfold.

    Exit code 3 when Spark does not start.
    """
    settings = invocation(ctx).settings()
    if "spark.remote" in settings.spark:
        allowed = "not to be set here: no Spark starts on this machine"
        raise ConfigError(file="settings", key="spark.remote", found="a server", allowed=allowed)
    from silverfold.pipelines.spark.preparing import prepare as make_ready  # noqa: PLC0415 - --help must not load Spark

    with Console(stderr=True).status("starting Spark, and archiving its classes"):
        done = make_ready(settings)
    print(f"{done.archive}: {done.size >> 20} MB; Spark has started in {done.seconds:.1f} s with it")


if __name__ == "__main__":
    main_of("prepare")

"""``silverfold-databricks``: the command line as entry point of a Databricks job's ``python_wheel_task``.

It takes the arguments of ``silverfold``, and differs in this:

- A run fails by any SystemExit there, even one of code 0. So a command that succeeds returns, and any other raises.
- The packaged settings are those of ``databricks``, unless ``--env`` or ``SILVERFOLD_ENV`` names others.
- ``receive`` is a process of its own. Its event loop cannot run in a process that has one already, as a job's has, and
  it tunes garbage collection for all of its process. Signals are passed on to it.

All other commands run here, in the session that the job has: `pipelines.spark.session` finds it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from silverfold.connectors.common.stopping import ending
from silverfold.jobs.cli import count_before_command
from silverfold.jobs.cli import main as run_here


def main() -> None:
    """Run the command of this process's arguments.

    Raises:
        SystemExit: It failed, with the exit code of `silverfold.jobs.cli`, or 128 and the number of the signal that
            ended a receiver.
    """
    os.environ.setdefault("SILVERFOLD_ENV", "databricks")
    arguments = sys.argv[1:]
    try:
        if arguments[count_before_command(arguments) :][:1] == ["receive"]:
            sys.exit(run_child([sys.executable, "-m", "silverfold.jobs", *arguments]))
        run_here(arguments)
    except SystemExit as left:
        if left.code not in (None, 0):
            raise


def run_child(command: Sequence[str]) -> int:
    """Run a command to its end, with the signals that end a job passed on to it.

    It imports from where this process does: a cluster's libraries are not in the folder of its Python.

    Returns:
        Its exit code, or 128 and the number of the signal that ended it.
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        if not running:
            early.append(number)
        for each in running:
            each.send_signal(number)

    is_main = threading.current_thread() is threading.main_thread()  # no other thread can handle signals
    before = {number: signal.signal(number, pass_on) for number in ending()} if is_main else {}
    try:
        # in a session of its own: a signal to this process's group would come twice, which ends a receiver at once
        with subprocess.Popen(command, env=environ, start_new_session=True) as child:  # noqa: S603 - ours
            running.append(child)
            for number in early:
                child.send_signal(number)
            try:
                code = child.wait()
            except BaseException:  # this process is interrupted otherwise than by a signal
                child.terminate()
                child.wait()
                raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()

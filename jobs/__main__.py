"""The entry point of ``silverfold``: imports little itself, so that an interrupt ends it quietly from the start."""

import os
import signal
import sys


def main() -> None:
    """Run the command line. An interrupt while that is imported ends the process as a later one does."""
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is signal.default_int_handler:  # its exception would be lost in the callbacks of an import
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        from silverfold.jobs.cli import main as run  # noqa: PLC0415 - these are the imports that take time

        signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

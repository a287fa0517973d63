"""The entry point of ``silverfold``: imports little itself, so that an interrupt ends it quietly from the start."""

import sys


def main() -> None:
    """Run the command line. An interrupt while that is imported ends the process as a later one does."""
    try:
        from silverfold.jobs.cli import main as run  # noqa: PLC0415 - these are the imports that take time

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

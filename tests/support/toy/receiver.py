"""The toy's receiver: lands every line of the source."""

from __future__ import annotations

from silverfold.connectors.frames import Boundary, Frame, FrameSink, Kind, Resume
from toy.options import ToyFeed
from toy.protocol import line


class ToyReceiver:
    """See `connectors.frames.Receiver`."""

    def __init__(self, feed: ToyFeed) -> None:
        self._lines = feed.options.lines

    async def run(self, sink: FrameSink, resume: Resume) -> str:
        """Land the lines."""
        bodies = [line(number) for number in range(self._lines)]
        await sink.land([Frame(body, Kind.DATA, Boundary.WHOLE, "lines") for body in bodies])
        return "there are no more lines"

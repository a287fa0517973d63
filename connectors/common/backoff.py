"""Waits between attempts: of many clients, so that not all retry at once, and of streams that break a connection.

`RenewedFiles` decides what is waited out of the files that settings name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from silverfold.conf.errors import ConfigError, SourceRefused, SourceUnavailable, UntrustedSource

MAX_BROKEN_EPOCHS: Final = 2
"""Number of consecutive epochs broken by a stream at which it is suspended."""


class Backoff:
    """Yields waits in seconds, each drawn uniformly from zero to a bound that doubles from ``first`` to ``longest``."""

    def __init__(self, first: float, longest: float, rng: Random) -> None:
        self._first, self._longest, self._rng = first, longest, rng
        self.reset()

    def reset(self) -> None:
        """Reset the bound after a success."""
        self.bound = min(self._first, self._longest)
        """The longest that the next wait may be, in seconds."""

    def next_wait(self) -> float:
        """Return seconds to wait, and double the bound for the next wait."""
        wait = self._rng.uniform(0.0, self.bound)
        self.bound = min(2 * self.bound, self._longest)
        return wait


class CircuitBreaker:
    """Tracks, across the epochs of a feed, which streams broke them.

    Args:
        backoff: Creates a stream's backoff, the lengths of its suspensions: longer each time.
        clock: Seconds from an arbitrary origin.
    """

    def __init__(self, backoff: Callable[[], Backoff], clock: Callable[[], float]) -> None:
        self._backoffs, self._clock = defaultdict[str, Backoff](backoff), clock
        self._consecutive, self._suspended_until = defaultdict[str, int](int), dict[str, float]()

    def suspension(self, stream: str) -> float:
        """Return the remaining seconds of the stream's suspension; 0.0 when it is not suspended."""
        return max(0.0, self._suspended_until.get(stream, 0.0) - self._clock())

    def reset(self, stream: str) -> None:
        """Record that the stream is well."""
        self._consecutive[stream] = 0
        self._backoffs[stream].reset()

    def trip(self, stream: str) -> None:
        """Record that the stream broke an epoch, and suspend it if that was not the first in a row."""
        self._consecutive[stream] += 1
        if self._consecutive[stream] >= MAX_BROKEN_EPOCHS:
            self._suspended_until[stream] = self._clock() + self._backoffs[stream].next_wait()


class RenewedFiles:
    """Files that a receiver reads anew for each epoch, such as certificates, keys and secrets.

    Whoever renews them may leave one missing, half written, or unlike its key for a moment. The source may also use the
    new one earlier or later than the file is there.
    """

    def __init__(self) -> None:
        self._were_right = False
        self._trust_may_change = self._login_may_change = False
        self.have_let_us_in = False
        """Whether the source has let us in, in some epoch."""

    def let_in(self, *, trust: bool = False, login: bool = False) -> None:
        """Record that the source let us in.

        Args:
            trust: Whether a file names whom to trust.
            login: Whether a file has what we log in with. An environment variable stays as it is.
        """
        self.have_let_us_in = True
        self._trust_may_change, self._login_may_change = trust, login

    @contextmanager
    def retrying_refusals(self, is_of_login: Callable[[SourceRefused], bool] = lambda _: False) -> Iterator[None]:
        """Around the code that connects to the source, and talks to it.

        Args:
            is_of_login: Whether an error means that the source refuses what we log in with.

        Raises:
            SourceRefused: As in the block, before the source let us in, or where no file could make a difference.
            SourceUnavailable: In place of a refusal of login or trust, later: files are read anew for the next try.
        """
        try:
            yield
        except SourceRefused as error:
            is_trust = isinstance(error, UntrustedSource)
            if not (self._trust_may_change if is_trust else self._login_may_change and is_of_login(error)):
                raise
            raise SourceUnavailable(f"{error} (it let us in before, and may do so again)") from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around the code that reads the files, and may connect to the source with them.

        Raises:
            ConfigError: As in the block, before the files were right for the first time.
            SourceUnavailable: In place of a ConfigError, later: the files are to be tried again.
        """
        try:
            yield
        except ConfigError as error:
            if not self._were_right:
                raise
            raise SourceUnavailable(f"{error} (it was right before, and may be so again)") from error
        except Exception:
            self._were_right = True  # the source is the trouble: whoever asked it had read the files
            raise
        self._were_right = True

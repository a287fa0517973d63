"""Writers of a table with Spark, one at a time where that is needed: by a lease on S3, by a lock on a local disk.

On S3 two commits can replace each other.

Delta's log store for S3 checks for a commit with the next number and then puts its own, so two drivers may both find
none (tried: two drivers, 25 appends each; 49 rows landed, both drivers reported 25). delta-rs puts a commit only where
none exists, so bronze and the ledgers need no lease.

A lease is one small object, changed only from the state in which it was read (``If-Match``), which every S3 store
supports. The holder renews it while Spark works. Another process takes it over once it has not changed for `LENGTH`
seconds on that process's own clock, so the clocks of machines need not agree. A holder that slept for longer has lost
it, which it learns at the end. A commit it made nevertheless may have replaced another one, or been replaced. Since the
position is in the same commit as the rows, lost rows are applied again.

On a local disk Delta fails the later of two commits, so writers share a lock. Only a rebuild that builds overtake again
and again takes it alone. The system frees it when its holder dies.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from uuid import uuid4

from silverfold.conf.errors import Overtaken, SparkUnavailable, StoreUnavailable
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.s3 import access_options
from silverfold.pipelines.store import naming_the_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

LENGTH = 30.0
"""Seconds after which a lease that is not renewed can be taken over."""


PATIENCE = 2 * LENGTH
"""Seconds that a writer waits for another one."""

_PAUSE = 0.01
"""Seconds between two tries to lock: shorter than what a build needs between two cuts."""

_TURN = 5.0
"""Longest wait for a lock that is shared: other tables have their turn then, and a build that is to stop stops."""

_BUSY = "another build, rebuild or maintain is writing it; try again"


class _State(NamedTuple):
    """The contents of a lease's object."""

    tag: str | None
    """The store's ETag of this state; None if there is no object yet."""
    holder: str | None
    turn: int
    """Differs between states, since stores derive ETags from content."""


@dataclass(frozen=True)
class Lease:
    """The right to write one table with Spark.

    Args:
        store: Store of the object.
        name: Name of the object.
        table: For errors.
        length: Seconds.
        patience: Seconds to wait for the other holder before `Overtaken` is raised.
    """

    store: ObjectStore
    name: str
    table: str
    length: float = LENGTH
    patience: float = PATIENCE
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease for as long as the block runs.

        Raises:
            Overtaken: Another process holds it, or took it over meanwhile: plan anew from the table's present state.
            StoreUnavailable: The store does not answer.
        """
        holder = uuid4().hex
        state, done, lost = self._acquire(holder), threading.Event(), threading.Event()
        renewer = threading.Thread(target=self._renew, args=(state, done, lost), name=f"lease {self.name}", daemon=True)
        renewer.start()
        try:
            yield
        finally:
            done.set()
            renewer.join()
            found = self._read()
            if found.holder == holder and not lost.is_set():
                self._put(found, None)
            else:
                lost.set()
        if lost.is_set():
            raise Overtaken("another process took over its lease meanwhile", table=self.table)

    def _acquire(self, holder: str) -> _State:
        began, seen = self.clock(), self._read()
        since = began
        while True:
            now = self.clock()
            if (seen.holder is None or now - since >= self.length) and (taken := self._put(seen, holder)) is not None:
                return taken
            if now - began >= self.patience:
                raise Overtaken(_BUSY, table=self.table)
            self.sleep(self.length / 60)
            found = self._read()
            if found != seen:
                seen, since = found, self.clock()

    def _renew(self, state: _State, done: threading.Event, lost: threading.Event) -> None:
        """Renew the lease until it is no longer needed or was taken over. Retries if the store does not answer."""
        while not done.wait(self.length / 3):
            try:
                renewed = self._put(state, state.holder)
            except StoreUnavailable:  # the next renewal, or the end, detects a loss
                continue
            if renewed is None:
                lost.set()
                return
            state = renewed

    def _read(self) -> _State:
        import obstore  # noqa: PLC0415 - comes with the extra

        with self._naming_the_store():
            try:
                found = obstore.get(self.store, self.name)
            except FileNotFoundError:
                return _State(None, None, 0)
            content = bytes(found.bytes())
        try:
            body = json.loads(content)
            return _State(found.meta["e_tag"], body["holder"], body["turn"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreUnavailable(f"lease {self.name}: this object is no lease, remove it") from error

    def _put(self, seen: _State, holder: str | None) -> _State | None:
        """Set or clear the lease's holder; return its new state, None if it has changed since it was read."""
        import obstore  # noqa: PLC0415 - comes with the extra
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError  # noqa: PLC0415 - as above

        body = json.dumps({"holder": holder, "turn": seen.turn + 1}).encode()
        mode: Any = "create" if seen.tag is None else {"e_tag": seen.tag}
        with self._naming_the_store():
            try:
                done = obstore.put(self.store, self.name, body, mode=mode)
            except (AlreadyExistsError, NotFoundError, PreconditionError):
                return None
        return _State(done["e_tag"], holder, seen.turn + 1)

    @contextmanager
    def _naming_the_store(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - comes with the extra

        try:
            yield
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"lease {self.name}: {str(error).splitlines()[0]}") from error


def check_package() -> None:
    """Check that leases can be used. Raises SparkUnavailable: the package that they need is not installed."""
    if find_spec("obstore") is None:
        raise SparkUnavailable("a warehouse on S3 needs packages that are not here: install silverfold[s3]")


def sole_writer(
    places: Places, feed: str, table: str, *, alone: bool = False, patience: float = PATIENCE
) -> AbstractContextManager[None]:
    """Return a context in which no other process of ours writes the table with Spark, where that could do harm.

    Args:
        alone: Let no other process of ours write it on a local disk either.
        patience: Seconds to wait for others before `Overtaken` is raised; for a lock that is shared `_TURN` at most.

    Raises:
        SparkUnavailable: The package that leases need is not installed.
    """
    if not places.needs_leases:
        file, wait = places.lock(feed, table).local, patience if alone else min(patience, _TURN)
        return nullcontext() if file is None else _locked(file, table, alone=alone, patience=wait)
    check_package()
    from obstore.store import from_url  # noqa: PLC0415 - comes with the extra

    options: Any = access_options(places.storage_options)
    client_options: Any = {"allow_http": options.pop("allow_http", "false")}
    store = from_url(places.warehouse, config=options, client_options=client_options)
    return Lease(store, places.lease(feed, table), table, patience=patience).held()


@contextmanager
def _locked(file: Path, table: str, *, alone: bool, patience: float) -> Iterator[None]:
    """Hold a lock on a file as long as the block runs, shared unless ``alone``.

    Raises:
        Overtaken: Others held it for too long.
        StoreUnavailable: The file cannot be made, or something else is in its place.
    """
    with naming_the_store(str(file)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            opened = file.open("ab")
        except FileExistsError as error:
            raise StoreUnavailable(f"{file.parent} is a file where a folder of locks belongs: remove it") from error
        except IsADirectoryError as error:
            raise StoreUnavailable(f"{file} is a folder where a lock file belongs: remove it") from error
    with opened:
        until = time.monotonic() + patience
        while not _try_lock(opened, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            if time.monotonic() >= until:
                raise Overtaken(f"{_BUSY}, or end it: `fuser {file}` tells which process it is", table=table)
            time.sleep(_PAUSE)
        yield


def _try_lock(file: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: Delta alone decides between two writers
        pass
    return True

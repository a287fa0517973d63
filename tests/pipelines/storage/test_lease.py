"""A table's lease: one holds it at a time, a dead one's is taken over, and who lost it is told."""

from __future__ import annotations

import errno
import fcntl
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from obstore.store import MemoryStore

import silverfold.pipelines.storage.lease
from silverfold.conf.errors import Overtaken, SparkUnavailable, StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.pipelines.places import Places, SidePlaces, places_of
from silverfold.pipelines.storage.lease import Lease, sole_writer
from tests.support.polling import wait_until

NAME = "_silverfold/feed/lease/t"


class Clock:
    """Counts what it is told to sleep, and calls something meanwhile."""

    def __init__(self) -> None:
        self.now, self.meanwhile = 0.0, iter(())

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        next(self.meanwhile, None)


def lease(store: MemoryStore, clock: Clock | None = None, *, length: float = 30.0, patience: float = 60.0) -> Lease:
    clock = clock or Clock()
    return Lease(store, NAME, "t", length, patience, clock.sleep, clock)


def enter(context: AbstractContextManager[None]) -> None:
    with context:
        pass


def test_whoever_comes_second_waits_until_the_first_is_done() -> None:
    store, clock = MemoryStore(), Clock()
    first = lease(store).held()
    first.__enter__()

    def meanwhile() -> Iterator[None]:
        yield from [None] * 5
        first.__exit__(None, None, None)
        yield

    clock.meanwhile = meanwhile()
    enter(lease(store, clock).held())

    assert 3.0 <= clock.now < 30.0, "not before it was given back, and not only once it was old"


def test_a_lease_of_one_that_died_is_taken_over_once_it_is_old() -> None:
    store, clock = MemoryStore(), Clock()
    lease(store)._acquire("one that died")
    enter(lease(store, clock).held())
    assert clock.now == pytest.approx(30.0, abs=1.0)
    enter(lease(store).held())


def test_a_lease_that_is_renewed_is_nobody_elses() -> None:
    store, clock = MemoryStore(), Clock()
    state = lease(store)._acquire("another")

    def meanwhile() -> Iterator[None]:
        nonlocal state
        while True:
            renewed = lease(store)._put(state, "another")
            assert renewed is not None
            state = renewed
            yield

    clock.meanwhile = meanwhile()
    with pytest.raises(Overtaken, match="another build, rebuild or maintain is writing it"):
        enter(lease(store, clock).held())


def test_who_slept_through_the_end_of_its_lease_is_told() -> None:
    store = MemoryStore()
    other = lease(store)
    with pytest.raises(Overtaken, match="took over its lease"), lease(store, length=3600.0).held():
        other._put(other._read(), "another")
    assert lease(store)._read().holder == "another", "it keeps what it took"


def test_a_holder_renews_its_lease() -> None:
    store = MemoryStore()
    with lease(store, length=0.03).held():
        turn = lease(store)._read().turn
        wait_until(lambda: lease(store)._read().turn > turn + 2, "three renewals")
    assert lease(store)._read().holder is None


def test_what_is_raised_inside_is_passed_on_and_the_lease_given_back() -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="ours"), lease(store).held():
        raise ValueError("ours")
    assert lease(store)._read().holder is None


def test_of_many_one_works_at_a_time() -> None:
    store, inside, most = MemoryStore(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with Lease(store, NAME, "t", length=1.0, patience=60.0).held():
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0.002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\x00", b"\xff"])
def test_an_object_that_is_no_lease_is_named_with_the_way_on(content: bytes) -> None:
    store = MemoryStore()
    store.put(NAME, content)
    with pytest.raises(StoreUnavailable, match="lease _silverfold/feed/lease/t: this object is no lease, remove it"):
        enter(lease(store).held())


@pytest.mark.parametrize("environment", ["local", "databricks"])
@pytest.mark.parametrize(
    ("warehouse", "needed"),
    [("s3://lake/w", True), ("s3a://lake/w", True), ("/lake", False), ("gs://lake", False), ("s3", False)],
)
def test_only_a_warehouse_on_s3_needs_leases(environment: str, warehouse: str, needed: bool) -> None:
    settings = load_settings(None, environment, {"SILVERFOLD__WAREHOUSE": warehouse})
    assert places_of(settings).needs_leases is (needed and environment == "local")


def test_elsewhere_nothing_is_held() -> None:
    assert isinstance(sole_writer(Places("gs://lake/w"), "feed", "t"), nullcontext)


def writer(warehouse: Path, *, alone: bool = False) -> AbstractContextManager[None]:
    return sole_writer(Places(str(warehouse)), "feed", "t", alone=alone, patience=0.0)


def test_on_a_local_disk_builds_write_beside_each_other_and_a_rebuild_may_write_alone(tmp_path: Path) -> None:
    with writer(tmp_path), writer(tmp_path), pytest.raises(Overtaken, match="is writing it"):
        enter(writer(tmp_path, alone=True))
    with writer(tmp_path, alone=True), pytest.raises(Overtaken, match="is writing it"):
        enter(writer(tmp_path))
    with writer(tmp_path, alone=True):
        enter(sole_writer(Places(str(tmp_path)), "feed", "another", patience=0.0))
        enter(sole_writer(SidePlaces(str(tmp_path), table="t", token="a"), "feed", "t", patience=0.0))


def test_a_build_waits_until_a_rebuild_has_ended(tmp_path: Path) -> None:
    alone = writer(tmp_path, alone=True)
    alone.__enter__()
    build = threading.Thread(target=lambda: enter(sole_writer(Places(str(tmp_path)), "feed", "t")))
    build.start()
    build.join(0.1)
    assert build.is_alive()
    alone.__exit__(None, None, None)
    build.join(30.0)
    assert not build.is_alive()


def test_a_lock_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "_silverfold").write_text("no folder")
    with pytest.raises(StoreUnavailable, match="_silverfold/feed/lease"):
        enter(writer(tmp_path))


def test_what_stands_where_a_lock_belongs_is_named_with_the_way_on(tmp_path: Path) -> None:
    locks = tmp_path / "_silverfold/feed/lease"
    (locks / "t").mkdir(parents=True)
    with pytest.raises(StoreUnavailable) as folder:
        enter(writer(tmp_path))
    (locks / "t").rmdir()
    locks.rmdir()
    locks.touch()
    with pytest.raises(StoreUnavailable) as file:
        enter(writer(tmp_path))
    locks.unlink()
    enter(writer(tmp_path))

    assert str(folder.value) == f"{locks}/t is a folder where a lock file belongs: remove it"
    assert str(file.value) == f"{locks} is a file where a folder of locks belongs: remove it"


def test_a_file_system_without_locks_has_writers_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refusing)
    with writer(tmp_path, alone=True):
        enter(writer(tmp_path))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silverfold.pipelines.storage.lease, "find_spec", lambda _name: None)
    with pytest.raises(SparkUnavailable, match=r"silverfold\[s3\]"):
        sole_writer(Places("s3://lake/w", needs_leases=True), "feed", "t")

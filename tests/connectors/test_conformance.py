"""What every connector in the registry must be and have; a new one is covered by its line there."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.model import Strict, Table
from silverfold.connectors.base import Connector
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.registry import CONNECTORS, find_connector, hyphenated_name
from silverfold.pipelines.verifying.compare import same
from tests.support.golden_source import GoldenSource, cut, golden_source
from tests.support.memory import MemorySink
from tests.support.mutations import mutated
from tests.support.tries import a_third
from tests.support.two_readers import TwoReaders

ROOMS = ("connector", "decoder", "options", "protocol", "receiver", "reference", "server")
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(params=sorted(CONNECTORS))
def found(request: pytest.FixtureRequest) -> Connector:
    return find_connector(request.param)


def folder(found: Connector) -> str:
    return type(found).__module__.rpartition(".")[0]


def test_it_is_called_what_the_registry_calls_it(found: Connector) -> None:
    assert find_connector(found.name) is found


def test_its_folder_has_every_room(found: Connector) -> None:
    there = {entry.name for entry in files(folder(found)).iterdir()}
    assert {"PROTOCOL.md", "__init__.py"} <= there
    assert set(ROOMS) <= {name.removesuffix(".py") for name in there}


def test_it_has_golden_vectors(found: Connector) -> None:
    assert any((GOLDEN / found.name).iterdir())


def test_its_settings_are_strict_and_extend_the_common_ones(found: Connector) -> None:
    assert issubclass(found.Options, Strict)
    assert issubclass(found.TableOptions, Table)


def test_it_says_how_it_goes_on_after_a_lost_connection(found: Connector) -> None:
    assert found.continuity in ("resync", "resume")


def test_it_travels_to_sparks_workers(found: Connector) -> None:
    assert type(pickle.loads(pickle.dumps(found))) is type(found)


def test_its_simulator_is_listed_with_the_first_line_of_its_help(found: Connector) -> None:
    assert str(inspect.getdoc(found.simulator())).splitlines()[0] == found.simulator_summary


def test_its_packages_are_those_of_its_extra_and_readme_names_it(found: Connector) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extra = hyphenated_name(found)
    required = [str(re.match(r"[\w-]+", requirement)[0]) for requirement in extras.get(extra, ())]
    provided = [{*packages_distributions()[package.partition(".")[0]]} for package in found.packages]
    assert [len(each.intersection(required)) for each in provided] == [1] * len(required)
    row = re.search(rf"^\| `{found.name}` \| .* \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert row
    if required:
        assert re.search(rf"[\[,]{extra}[,\]]", *extras["all"])
        assert row[0].endswith(f" | `silverfold[{extra}]` |")


def test_it_is_found_and_described_without_its_packages(found: Connector) -> None:
    extra = f"one whose packages are here: install silverfold[{hyphenated_name(found)}]" if found.packages else None
    assert described()[found.name] == f"{found.Options.__name__} {extra}"


@cache
def described() -> dict[str, str]:
    """Return the options and the missing extra of all connectors, as told by a new process without their packages."""
    connectors = [find_connector(name) for name in sorted(CONNECTORS)]
    script = (
        "import sys\n"
        "from importlib import import_module\n"
        f"sys.modules.update(dict.fromkeys({[package for each in connectors for package in each.packages]}))\n"
        "from silverfold.connectors.registry import missing_extra\n"
        "for module in sys.argv[1:]:\n"
        "    found = import_module(module).CONNECTOR\n"
        "    print(found.name, found.Options.__name__, missing_extra(found))"
    )
    modules = [type(each).__module__ for each in connectors]
    done = subprocess.run([sys.executable, "-c", script, *modules], check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_its_protocol_opens_nothing(found: Connector) -> None:
    for module in modules_of(found, "protocol"):
        brought = loaded()[module]
        assert module in brought
        assert not brought & {"socket", "asyncio", "pyspark", "deltalake"}


def test_its_receiver_does_not_load_spark(found: Connector) -> None:
    for module in modules_of(found, "receiver"):
        brought = loaded()[module]
        assert module in brought
        assert "pyspark" not in brought


def modules_of(found: Connector, room: str) -> list[str]:
    """Return the modules of one of its rooms, which is a module itself or a package."""
    name = f"{folder(found)}.{room}"
    room_module = import_module(name)
    inside = walk_packages(getattr(room_module, "__path__", ()), f"{name}.")
    return [name, *(module.name for module in inside)]


@cache
def loaded() -> dict[str, set[str]]:
    """Return for the pure modules and the receiver of each connector what had been imported by then.

    A process imports them one after another, the pure ones first: what one of them brings is also with all later ones.
    What numpy and Arrow bring is left out.
    """
    connectors = [find_connector(name) for name in sorted(CONNECTORS)]
    modules = [module for room in ("protocol", "receiver") for each in connectors for module in modules_of(each, room)]
    script = (
        "import sys, numpy, pyarrow, pyarrow.compute\n"
        "from importlib import import_module\n"
        "before = set(sys.modules)\n"
        "for module in sys.argv[1:]:\n"
        "    import_module(module)\n"
        "    print(module, *(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], check=True, capture_output=True, text=True)
    return {module: set(brought) for module, *brought in map(str.split, done.stdout.splitlines())}


def test_the_connector_object_lives_in_its_own_folder(found: Connector) -> None:
    assert import_module(folder(found)).__doc__


@pytest.fixture(scope="module", params=sorted(CONNECTORS))
def source(request: pytest.FixtureRequest) -> GoldenSource:
    return golden_source(request.param)


@a_third
@given(size=st.integers(1, 200))
def test_what_lands_of_a_golden_source_does_not_depend_on_where_chunks_end(source: GoldenSource, size: int) -> None:
    frames = source.land([[turn] for turn in source.turns])
    assert any(frame.body in turn for frame in frames for turn in source.turns)
    assert source.land([cut(turn, size) for turn in source.turns]) == frames


@a_third
@given(data=st.data())
def test_any_bytes_of_a_golden_source_land_or_are_refused_with_an_error_of_ours(
    source: GoldenSource, data: st.DataObject
) -> None:
    *before, last = source.turns
    octets = data.draw(st.binary(max_size=200) | mutated([last]))
    with suppress(SilverfoldError):
        source.land([*([turn] for turn in before), [octets]])


def test_a_receiver_of_a_golden_source_that_is_cancelled_lands_all_that_had_arrived(source: GoldenSource) -> None:
    async def run() -> tuple[list[Frame], bool]:
        sink, sent = FullSink(room=source.awaits_commits), asyncio.Event()
        async with asyncio.timeout(60), source.received(sink, sent) as task:
            await sent.wait()
            for _ in range(10):  # on loopback, what was sent is read the next time that the loop looks
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        return sink.frames, task.cancelled()

    landed, cancelled = asyncio.run(run())
    assert cancelled
    assert sent_of(source, landed) == sent_of(source, source.land([[turn] for turn in source.turns]))


def test_frames_of_a_golden_source_are_decoded_as_the_reference_reads_them(source: GoldenSource) -> None:
    frames = source.land([[turn] for turn in source.turns])
    for table in source.feed.tables:
        readers = TwoReaders(source.feed, table, frames)
        rows, errors = readers.by_decoder()
        assert errors == []
        assert rows
        assert same(dict(readers.by_reference()), dict(rows))


@a_third
@given(data=st.data())
def test_any_frame_of_a_golden_source_is_decoded_as_the_reference_reads_it_or_refused_by_both(
    source: GoldenSource, data: st.DataObject
) -> None:
    frames = source.land([[turn] for turn in source.turns])
    at = data.draw(st.sampled_from([at for at, frame in enumerate(frames) if is_decoded(frame)]))
    frames[at] = frames[at]._replace(body=data.draw(mutated([frames[at].body])))
    for table in source.feed.tables:
        readers = TwoReaders(source.feed, table, frames)
        rows, errors = readers.by_decoder()
        try:
            expected = readers.by_reference()
        except SilverfoldError:
            assert errors
            continue
        assert errors == []
        assert same(dict(expected), dict(rows))


class FullSink(MemorySink):
    """A sink that has no more room once a frame of a stream has landed, marks aside, unless it has room for all."""

    def __init__(self, *, room: bool) -> None:
        super().__init__()
        self._room = room

    async def land(self, frames: Sequence[Frame]) -> None:
        self.is_full |= not self._room and any(frame.stream and frame.kind is not Kind.MARK for frame in frames)
        await super().land(frames)


def is_decoded(frame: Frame) -> bool:
    """Return whether a decoder reads the frame's body: a receiver has read those that only begin or end an update."""
    return frame.kind in (Kind.DATA, Kind.SNAPSHOT) and frame.boundary in (Boundary.INSIDE, Boundary.WHOLE)


def sent_of(source: GoldenSource, frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames that the source sent, without those that the receiver asked for or wrote."""
    return [frame for frame in frames if frame.body and any(frame.body in turn for turn in source.turns)]

"""What every connector in the registry must be and have; a new one is covered by its line there."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import walk_packages

import pytest

from silverfold.conf.model import Strict, Table
from silverfold.connectors.base import Connector
from silverfold.connectors.registry import CONNECTORS, find_connector

ROOMS = ("connector", "decoder", "options", "protocol", "receiver", "reference", "server")
GOLDEN = Path(__file__).parents[1] / "golden"


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
    assert pickle.loads(pickle.dumps(found)) == found


def test_its_simulator_is_listed_with_the_first_line_of_its_help(found: Connector) -> None:
    assert str(inspect.getdoc(found.simulator())).splitlines()[0] == found.simulator_summary


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

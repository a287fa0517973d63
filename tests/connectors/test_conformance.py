"""What every connector in the registry must be and have; a new one is covered by its line there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

from conf.model import Strict, Table
from connectors.base import Connector
from connectors.registry import CONNECTORS, find_connector

PURE = ("messages", "protocol")
PARTS = ("PROTOCOL.md", "__init__.py", *(f"{name}.py" for name in PURE), "receiver.py", "decode.py", "server.py")
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(params=sorted(CONNECTORS))
def found(request: pytest.FixtureRequest) -> Connector:
    return find_connector(request.param)


def folder(found: Connector) -> str:
    return type(found).__module__.rpartition(".")[0]


def test_it_is_called_what_the_registry_calls_it(found: Connector) -> None:
    assert find_connector(found.name) is found


def test_its_folder_has_every_part(found: Connector) -> None:
    there = {entry.name for entry in files(folder(found)).iterdir()}
    assert set(PARTS) <= there


def test_it_has_golden_vectors(found: Connector) -> None:
    assert any((GOLDEN / found.name).iterdir())


def test_its_settings_are_strict_and_extend_the_common_ones(found: Connector) -> None:
    assert issubclass(found.Options, Strict)
    assert issubclass(found.TableOptions, Table)


def test_it_says_how_it_goes_on_after_a_lost_connection(found: Connector) -> None:
    assert found.continuity in ("resync", "resume")


def test_it_travels_to_sparks_workers(found: Connector) -> None:
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("part", PURE)
def test_its_protocol_opens_nothing(found: Connector, part: str) -> None:
    loaded = loaded_by(f"{folder(found)}.{part}")
    assert not loaded & {"socket", "asyncio", "pyspark", "deltalake"}


def test_its_receiver_does_not_load_spark(found: Connector) -> None:
    assert "pyspark" not in loaded_by(f"{folder(found)}.receiver")


def loaded_by(module: str) -> set[str]:
    """Return the modules that importing one brings, beyond those of numpy and Arrow."""
    script = (
        "import sys, numpy, pyarrow, pyarrow.compute\n"
        "before = set(sys.modules)\n"
        f"import {module}\n"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_connector_object_lives_in_its_own_folder(found: Connector) -> None:
    assert import_module(folder(found)).__doc__

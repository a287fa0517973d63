import subprocess
import sys
from pathlib import Path

import pytest

from conf.errors import ConfigError
from jobs.packages import PACKAGES, check_packages

SITE = Path("/env/site-packages")


def ours(package: str) -> Path:
    return SITE / package


def installed(tmp_path: Path) -> Path:
    (tmp_path / "silverfold-0.1.0.dist-info").mkdir()
    return tmp_path


def test_this_environment_passes():
    check_packages()


def test_a_folder_that_hides_a_package_is_named():
    with pytest.raises(ConfigError) as refused:
        check_packages(SITE, lambda name: Path("/work/conf") if name == "conf" else SITE / name)
    assert str(refused.value) == (
        "/env/site-packages/conf: package conf: found '/work/conf', allowed: silverfold's own files alone: "
        "give it an environment of its own, or start it from another folder"
    )


def test_a_package_that_is_gone_is_named():
    with pytest.raises(ConfigError, match="package pipelines: found 'None'"):
        check_packages(SITE, lambda name: None if name == "pipelines" else SITE / name)


def test_a_distribution_that_wrote_into_a_package_is_named(tmp_path):
    home = installed(tmp_path)
    owners = {**{name: ["silverfold"] for name in PACKAGES}, "transforms": ["silverfold", "other-tools"]}
    with pytest.raises(ConfigError, match="package transforms: found 'files of the distribution other-tools'"):
        check_packages(home, lambda name: home / name, lambda: owners)


def test_five_packages_of_one_owner_pass(tmp_path):
    home = installed(tmp_path)
    owners = {**{name: ["silverfold"] for name in PACKAGES}, "numpy": ["numpy"]}
    check_packages(home, lambda name: home / name, lambda: owners)


def test_a_source_folder_has_no_owners_to_ask():
    check_packages(SITE, ours, lambda: {"jobs": ["someone"]})


def test_a_folder_that_hides_our_settings_is_named_before_anything_else(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "jobs.config", "check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {tmp_path}/conf/__init__.py hides silverfold's package conf: start from another folder, "
        "or give silverfold an environment of its own"
    )

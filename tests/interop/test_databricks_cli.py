"""The bundle for Databricks, deployed by Databricks' CLI to a workspace that is a stub on loopback.

The CLI is ``databricks`` on the PATH, such as one of the Go proxy: in the folder that ``go mod download -json
github.com/databricks/cli@v0.298.0`` names, ``go build -o ~/bin/databricks .``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from zipfile import ZipFile

import pytest

from tests.support.databricks import VALUES, jobs
from tests.test_house import HOME, PACKAGES, ROOT

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("databricks") is None, reason="needs Databricks' CLI on the PATH"),
]

USER = "somebody@example.com"
TARGET = f"/Workspace/Users/{USER}/.bundle/silverfold/prod"
FILES = "/api/2.0/workspace-files/"
IMPORT = f"{FILES}import-file/"
WITHIN = 600
ADDED_BY_THE_CLI = {"deployment", "edit_mode", "format", "queue"}
"""Fields of a job that are not the bundle's."""


class Workspace(ThreadingHTTPServer):
    """As much of a workspace as a deployment needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.jobs: list[dict[str, Any]] = []
        self.unknown: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    """One request to the workspace."""

    server: Workspace

    def do_GET(self) -> None:
        path, query = self._asked()
        if path == "/.well-known/databricks-config":
            self._reply(200, {"oidc_endpoint": f"{self.server.url}/oidc", "workspace_id": "1"})
        elif path == "/api/2.0/preview/scim/v2/Me":
            self._reply(200, {"id": "1", "userName": USER})
        elif path == "/api/2.0/workspace/get-status":
            self._reply_status(query["path"][0])
        elif path == "/api/2.0/workspace/export":
            self._reply_content(query["path"][0])
        elif path.startswith(FILES):
            self._reply_content(f"/{path.removeprefix(FILES).lstrip('/')}")
        else:
            self._reply_unknown(path)

    def do_POST(self) -> None:
        path, _ = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path.startswith(IMPORT):
            name = f"/{path.removeprefix(IMPORT).lstrip('/')}"
            self.server.files[name] = body
            self.server.folders |= set(map(str, Path(name).parents))
            self._reply(200, {})
        elif path == "/api/2.0/workspace/mkdirs":
            name = json.loads(body)["path"]
            self.server.folders |= {name, *map(str, Path(name).parents)}
            self._reply(200, {})
        elif path == "/api/2.0/workspace/delete":
            self.server.files.pop(json.loads(body)["path"], None)
            self._reply(200, {})
        elif path == "/api/2.2/jobs/create":
            self.server.jobs.append(json.loads(body))
            self._reply(200, {"job_id": len(self.server.jobs)})
        else:
            self._reply_unknown(path)

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path), parse_qs(parts.query)

    def _reply_status(self, name: str) -> None:
        if name in self.server.files or name in self.server.folders:
            kind = "FILE" if name in self.server.files else "DIRECTORY"
            self._reply(200, {"object_type": kind, "path": name, "object_id": 1})
        else:
            self._reply_unknown(name, is_lookup=True)

    def _reply_content(self, name: str) -> None:
        if name in self.server.files:
            self._reply(200, self.server.files[name])
        else:
            self._reply_unknown(name, is_lookup=True)

    def _reply_unknown(self, path: str, *, is_lookup: bool = False) -> None:
        if not is_lookup:
            self.server.unknown.append(f"{self.command} {path}")
        self._reply(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no {path}"})

    def _reply(self, status: int, body: bytes | dict[str, Any]) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Databricks-Org-Id", "1")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return the bundle in a copy of the project, in which the wheel is built, with settings."""
    project = tmp_path / "project"
    links = project / HOME.relative_to(ROOT)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, project / package, ignore=shutil.ignore_patterns("__pycache__", "settings"))
    shutil.copytree(HOME, links, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".gitignore"):
        shutil.copy(ROOT / name, project / name)
    feed = project / "jobs" / "databricks" / "settings" / "feeds" / "market.toml"
    feed.parent.mkdir(parents=True)
    feed.write_text('connector = "deephaven"\n')
    return feed.parents[2]


def test_a_deployment_makes_the_jobs_with_the_wheel_and_the_settings(workspace, bundle, tmp_path):
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "DATABRICKS_HOST": workspace.url,
        "DATABRICKS_TOKEN": "sesame",
        "DATABRICKS_CLI_DISABLE_TELEMETRY": "true",
        "BUNDLE_VAR_warehouse": VALUES["var.warehouse"],
        "BUNDLE_VAR_node_type": VALUES["var.node_type"],
    }
    command = ["databricks", "bundle", "deploy"]
    done = subprocess.run(command, cwd=bundle, env=environ, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert (done.returncode, workspace.unknown) == (0, []), done.stdout + done.stderr

    (wheel,) = (name for name in workspace.files if name.endswith(".whl"))
    assert wheel.startswith(f"{TARGET}/artifacts/")
    inside = ZipFile(BytesIO(workspace.files[wheel])).namelist()
    assert {name for name in inside if name.startswith("silverfold/jobs/databricks/")} == {
        "silverfold/jobs/databricks/__init__.py",
        "silverfold/jobs/databricks/__main__.py",
    }
    copied = {name.removeprefix(f"{TARGET}/files/") for name in workspace.files if name.startswith(f"{TARGET}/files/")}
    assert copied == {"settings/feeds/market.toml"}

    expected = jobs({**VALUES, "workspace.file_path": f"{TARGET}/files", "var.libraries": [{"whl": wheel}]})
    arrived = {job["name"]: {key: job[key] for key in job if key not in ADDED_BY_THE_CLI} for job in workspace.jobs}
    assert arrived == {job["name"]: job for job in expected.values()}

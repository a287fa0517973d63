"""The entry point of a Databricks task: its exit, its settings, and the receiver's process."""

import os
import signal
import subprocess
import sys
import threading
from importlib import import_module

import pytest

from silverfold.jobs.databricks import __main__ as entry
from tests.support.polling import wait_until
from tests.test_house import PROJECT

PATIENCE = 120
ENDED_BY_SIGNAL = """
import signal, sys, time
def end(number, _frame):
    print(signal.Signals(number).name)
    sys.exit(0)
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, end)
print("ready", flush=True)
time.sleep(600)
"""
PARENT = "import sys; from silverfold.jobs.databricks.__main__ import run_child; sys.exit(run_child(sys.argv[1:]))"


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("SILVERFOLD_ENV", "")
    monkeypatch.delenv("SILVERFOLD_ENV")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["silverfold-databricks", *arguments])
        entry.main()

    return run


def python(program):
    return [sys.executable, "-c", program]


def test_the_project_names_the_entry_point():
    module, _, function = PROJECT["project"]["scripts"]["silverfold-databricks"].partition(":")
    assert getattr(import_module(module), function) is entry.main


def test_a_command_that_succeeds_returns(run, capsys):
    run("--version")
    assert capsys.readouterr().out.startswith("silverfold ")


@pytest.mark.parametrize(
    "command",
    [
        *("build market", "check market", "maintain market", "receive market", "rebuild market quotes"),
        *("config check", "sql TABLE", "status", "verify market"),
    ],
)
def test_a_warehouse_in_a_volume_ends_each_command_with_the_reason(run, capfd, tmp_path, command):
    (tmp_path / "settings.toml").write_text('warehouse = "/Volumes/main/default/lake"\n')
    with pytest.raises(SystemExit) as left:
        run("--conf", str(tmp_path), *command.split())
    assert left.value.code == 2
    assert "a volume or a mount cannot rename a file in one step" in capfd.readouterr().err


@pytest.mark.parametrize(("chosen", "warehouse"), [({}, ""), ({"SILVERFOLD_ENV": "local"}, "warehouse warehouse")])
def test_settings_are_those_of_databricks_unless_others_are_named(run, capsys, monkeypatch, chosen, warehouse):
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    if warehouse:
        run("config", "check")
    else:
        with pytest.raises(SystemExit):
            run("config", "check")
    shown = capsys.readouterr()
    assert warehouse in shown.out
    assert ("warehouse: found nothing" in shown.err) is not bool(warehouse)


def test_receive_runs_as_a_child_and_nothing_else_does(run, monkeypatch):
    children, here = [], []
    monkeypatch.setattr(entry, "run_child", lambda command: children.append(command) or 4)
    monkeypatch.setattr(entry, "run_here", here.append)
    with pytest.raises(SystemExit) as left:
        run("--conf", "conf", "--env=local", "receive", "market")
    run("--conf", "receive", "build", "receive")
    run()
    assert left.value.code == 4
    own = ["--conf", "conf", "--env=local", "receive", "market"]
    assert children == [[sys.executable, "-m", "silverfold.jobs", *own]]
    assert here == [["--conf", "receive", "build", "receive"], []]


@pytest.mark.parametrize(
    ("program", "code"), [("", 0), ("raise SystemExit(4)", 4), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_childs(program, code):
    before = signal.getsignal(signal.SIGTERM)
    assert entry.run_child(python(program)) == code
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_child_finds_the_packages_of_its_parent(monkeypatch, tmp_path):
    (tmp_path / "library_of_the_cluster.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert entry.run_child(python("import library_of_the_cluster")) == 0


def test_a_thread_that_cannot_handle_signals_runs_a_child_too():
    codes = []
    thread = threading.Thread(target=lambda: codes.append(entry.run_child(python("raise SystemExit(3)"))))
    thread.start()
    thread.join()
    assert codes == [3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_child_ends_as_it_wants(number):
    command = [*python(PARENT), *python(ENDED_BY_SIGNAL)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(number)
        rest = parent.communicate(timeout=PATIENCE)[0]
    assert (rest, parent.returncode) == (f"{number.name}\n", 0)


def test_a_signal_that_comes_before_the_child_is_passed_on(monkeypatch):
    started = subprocess.Popen

    def signalled_first(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return started(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", signalled_first)
    assert entry.run_child(["sleep", "30"]) == 128 + signal.SIGTERM


def test_a_signal_to_the_parents_group_does_not_reach_the_child_by_itself():
    assert entry.run_child(python("import os; raise SystemExit(os.getsid(0) != os.getpid())")) == 0


def test_a_parent_that_is_interrupted_otherwise_ends_its_child(tmp_path):
    def interrupt(_number, _frame):
        raise InterruptedError

    def interrupt_once_started():
        wait_until((tmp_path / "started").exists, "the child")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=interrupt_once_started)
    thread.start()
    script = (
        f"trap 'touch {tmp_path}/ended; exit' TERM; touch {tmp_path}/started; for _ in $(seq 300); do sleep 0.1; done"
    )
    try:
        with pytest.raises(InterruptedError):
            entry.run_child(["sh", "-c", script])
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert (tmp_path / "ended").exists()

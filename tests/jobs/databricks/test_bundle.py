"""The bundle for Databricks, by the model of its jobs that Databricks publishes."""

import pytest
from databricks.bundles.jobs import Job

from silverfold.jobs.cli import count_before_command, load
from tests.support.databricks import BUNDLE, jobs, yaml
from tests.test_house import PROJECT

JOBS = jobs()
TASKS = {f"{key}.{task['task_key']}": task for key, job in JOBS.items() for task in job["tasks"]}


@pytest.mark.parametrize("key", JOBS)
def test_each_job_is_one_of_the_model(key):
    assert Job.from_dict(JOBS[key]).as_dict() == JOBS[key]


def test_a_setting_that_the_model_does_not_have_is_refused():
    with pytest.raises(ValueError, match="Unexpected field 'cron'"):
        Job.from_dict({**JOBS["build"], "cron": "daily"})


def test_jobs_run_when_the_readme_says():
    models = {key: Job.from_dict(job) for key, job in JOBS.items()}
    assert {key: job.schedule.quartz_cron_expression for key, job in models.items() if job.schedule} == {
        "build": "0 0/15 * * * ?",
        "daily": "0 0 2 * * ?",
        "weekly": "0 0 4 ? * SUN",
    }
    assert {key: job.continuous.pause_status.value for key, job in models.items() if job.continuous} == {
        "follow": "PAUSED",
        "receive": "UNPAUSED",
    }
    dependencies = {
        f"{key}.{task.task_key}": [each.task_key for each in task.depends_on]
        for key, job in models.items()
        for task in job.tasks
    }
    assert dependencies == {
        "build.build": [],
        "daily.check": [],
        "daily.maintain": [],
        "follow.build": [],
        "receive.receive": [],
        "weekly.build": [],
        "weekly.verify": ["build"],
    }


def test_a_receiver_has_one_machine_and_builds_have_a_session_of_their_own():
    workers = {key: job["job_clusters"][0]["new_cluster"]["num_workers"] for key, job in JOBS.items()}
    assert {key for key, count in workers.items() if count == 0} == {"receive"}
    modes = {job["job_clusters"][0]["new_cluster"]["data_security_mode"] for job in JOBS.values()}
    assert modes == {"SINGLE_USER"}


@pytest.mark.parametrize("name", TASKS)
def test_each_task_is_a_command_that_parses(name):
    task = TASKS[name]["python_wheel_task"]
    assert task["entry_point"] in PROJECT["project"]["scripts"]
    assert task["package_name"] == PROJECT["project"]["name"]
    arguments = task["parameters"]
    own = count_before_command(arguments)
    command, *rest = arguments[own:]
    assert arguments[:own] == ["--conf", "/Workspace/files/settings"]
    assert load(command).make_context(command, rest).params


def test_only_the_settings_are_copied():
    assert yaml(BUNDLE / "databricks.yml")["sync"] == {"paths": ["settings"]}

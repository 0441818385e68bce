"""The script of a worker on Slurm."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from assay.service.workers.slurm import NUMBER, SlurmFleet

NONE: dict[str, str] = {}
WORKER = "assay worker --until idle=300 --max-seconds 13800 --devices 1 --shard-seconds 120"
NAMED = '--name "assay.${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'


def fleet(**given: Any) -> SlurmFleet:
    return SlurmFleet(**{"partition": "gpu", "max": 64, **given})


def options(script: str) -> dict[str, str]:
    found = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH --"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


def last(script: str) -> str:
    return script.splitlines()[-1]


def test_a_worker_of_one_gpu_is_requeued_warned_and_ends_before_slurm_ends_it() -> None:
    script = fleet().script(NONE)
    assert script.startswith("#!/bin/sh\n")
    found = options(script)
    assert re.fullmatch(r"assay-fleet:assay:[0-9a-f]{16}", found.pop("comment"))
    assert found == {
        "job-name": "assay",
        "partition": "gpu",
        "ntasks": "1",
        "cpus-per-task": "1",
        "gres": "gpu:1",
        "time": "233",  # minutes: 13,800 s and 150 s, rounded up
        "signal": "B:USR1@90",
        "requeue": "",
        "open-mode": "append",
        "chdir": "/tmp",
        "output": "/tmp/assay-%A_%a.log",
    }
    assert last(script) == f"exec {WORKER} {NAMED}"


def test_what_the_user_asks_for_is_in_the_script() -> None:
    asked = fleet(
        name="a100", device="cuda", gres="gpu:a100:1", cpus="8", memory="64G", constraint="a100&nvlink",
        account="lab", qos="low", max_seconds="3600", idle="60", shard_seconds="60", logs="/var/log/assay/",
        command="env X=1 /opt/assay/bin/assay", worker=["--data-root", "/data of all"],
    )  # fmt: skip
    script = asked.script(NONE)
    found = options(script)
    assert (found["gres"], found["cpus-per-task"], found["mem"]) == ("gpu:a100:1", "8", "64G")
    assert (found["constraint"], found["account"], found["qos"]) == ("'a100&nvlink'", "lab", "low")
    assert (found["time"], found["output"]) == ("63", "/var/log/assay/a100-%A_%a.log")
    told = "--until idle=60 --max-seconds 3600 --devices 1 --shard-seconds 60 --data-root '/data of all'"
    assert last(script) == f'exec env X=1 /opt/assay/bin/assay worker {told} --name "a100.{NUMBER}"'


def test_the_comment_tells_whether_a_pending_job_has_the_present_options() -> None:
    comments = {options(fleet(idle=idle).script(NONE))["comment"] for idle in (60, 60, 61)}
    assert len(comments) == 2


def test_a_fleet_of_the_cpu_asks_for_no_gpu() -> None:
    assert "gres" not in options(fleet(device="cpu").script(NONE))


def test_containers() -> None:
    apptainer = fleet(container="apptainer", image="/images/assay.sif")
    assert last(apptainer.script(NONE)) == f"exec apptainer exec --nv /images/assay.sif {WORKER} {NAMED}"
    plain = fleet(container="apptainer", image="/images/assay.sif", device="cpu")
    assert last(plain.script(NONE)) == f"exec apptainer exec /images/assay.sif {WORKER} {NAMED}"
    enroot = fleet(container="enroot", image="/images/assay.sqsh")
    environment = {"ASSAY_STATE": "/state", "ASSAY_DATABASE_URL": "x", "HOME": "/root"}
    passed = "--env ASSAY_DATABASE_URL --env ASSAY_STATE"
    assert (
        last(enroot.script(environment)) == f"exec enroot start {passed} /images/assay.sqsh {WORKER} {NAMED}"
    )


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"name": "Two words"}, "name", "allowed: at most 40 lower-case letters, digits and -"),
        ({"partition": "gpu --evil"}, "partition", "allowed: letters, digits and ._,:@/+-"),
        ({"partition": "gpu\n#SBATCH --x"}, "partition", "allowed: letters"),
        ({"constraint": "a\nb"}, "constraint", "allowed: a line of at most 500 characters"),
        ({"memory": "much"}, "memory", "allowed: a number with K, M, G or T, such as 32G"),
        ({"logs": "logs"}, "logs", "allowed: an absolute path without spaces"),
        ({"max": 0}, "max", "greater than or equal to 1"),
        ({"device": "tpu"}, "device", "'cuda' or 'cpu'"),
        ({"max_seconds": 170}, "max_seconds", "has no room for a shard; allowed: at least 180"),
        ({"command": "assay 'x"}, "command", "is no command line: No closing quotation"),
        ({"container": "enroot"}, "image", "with --container enroot: required"),
        ({"image": "/a.sif"}, "image", "with --container none: not allowed"),
        (
            {"worker": ["--name=x", "--until", "idle=3"]},
            "worker",
            "the fleet gives its workers --name, --until",
        ),
        ({"every": 0}, "every", "greater than 0"),
    ],
)
def test_wrong_options_are_named(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        fleet(**given)
    (wrong,) = raised.value.errors()
    assert wrong["loc"][0] == field
    assert message in wrong["msg"]


def test_a_worker_at_a_gateway_has_a_state_folder_of_its_own() -> None:
    own = '--state "${TMPDIR:-/tmp}/assay-$(id -u)-' + NUMBER + '"'
    at_gateway = ["--gateway", "https://assay.example"]
    script = fleet(worker=at_gateway).script(NONE)
    assert last(script) == f"exec {WORKER} --gateway https://assay.example {own} {NAMED}"
    chosen = fleet(worker=[*at_gateway, "--state", "/scratch/assay"]).script(NONE)
    assert last(chosen) == f"exec {WORKER} --gateway https://assay.example --state /scratch/assay {NAMED}"


def test_a_container_is_not_given_the_key_of_the_controller() -> None:
    enroot = fleet(container="enroot", image="/images/assay.sqsh")
    line = last(enroot.script({"ASSAY_KEY": "of an administrator", "ASSAY_WORKER_KEY": "of a worker"}))
    assert "--env ASSAY_WORKER_KEY" in line
    assert "ASSAY_KEY" not in line

"""The compose files: valid by the specification's schema, closed to the network, hardened, without defaults
for secrets. Whether the commands in them work is tests/e2e/test_compose_start.py's.
"""

from __future__ import annotations

import importlib.resources
import json
import re
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from assay.service.cli.commands import pull
from assay.service.cli.main import build_parser
from assay.service.settings import Settings
from assay.workers.settings import WorkerSettings
from tests.support.compose import ROOT, Missing, load, variables

MAIN = ("docker-compose.yml",)
# What ends: the migration, whose success the others wait for, and a person's commands.
ONCE = ("migrate", "pull", "data")
# The second is of a profile: without `--profile textattack` it does not start.
WORKERS = ("worker", "textattack")
CPU = (*MAIN, "docker-compose.cpu.yml")
PRIVATE = (*MAIN, "docker-compose.private.yml")
BOX = ("docker-compose.worker.yml",)
BOX_CPU = (*BOX, "docker-compose.cpu.yml")
STAGING = (*MAIN, "docker-compose.staging.yml")
BOX_STAGING = (*BOX, "docker-compose.staging.yml")
COMBINATIONS = [MAIN, CPU, PRIVATE, BOX, BOX_CPU, STAGING, BOX_STAGING]
FILES = sorted({name for names in COMBINATIONS for name in names})

# For the files that demand them.
PLACES = {
    "ASSAY_PRIVATE_ADDRESS": "10.0.0.1",
    "ASSAY_STATE_SERVER": "10.0.0.1",
    "ASSAY_STATE_FOLDER": "/srv/assay/state",
    "ASSAY_DATABASE_URL": "postgresql+psycopg://assay@10.0.0.1:5432/assay",
    "ASSAY_REDIS_URL": "rediss://10.0.0.1:6379/0",
}
EVERY = [
    pytest.param(names, service, id=f"{'+'.join(names)}-{service}".replace("docker-compose", "").strip("."))
    for names in COMBINATIONS
    for service in load(*names)["services"]
]
# What docker itself reads, and what is not a setting of the service or the workers.
OF_DOCKER = {"COMPOSE_FILE", "COMPOSE_PROJECT_NAME"}
OF_THE_FILES = {
    *("ASSAY_UNHASHED_TORCH", "ASSAY_TORCH_INDEX"),
    *(
        "ASSAY_DATA",
        "ASSAY_WEIGHTS",
        *("ASSAY_PUBLISHED", "ASSAY_SCRATCH_DATA", "ASSAY_SCRATCH_WEIGHTS"),
        "HF_TOKEN",
        "HF_ENDPOINT",
        "HTTPS_PROXY",
        "ASSAY_PUBLISH",
        "ASSAY_SECRETS",
        "ASSAY_TAG",
        "ASSAY_COMMIT",
        "ASSAY_WORKER_EXTRA",
    ),
    *(f"ASSAY_{of}_{what}" for of in ("WORKER", "SERVICE", "DATABASE") for what in ("MEMORY", "CPUS")),
    *("ASSAY_PRIVATE_ADDRESS", "ASSAY_STATE_SERVER", "ASSAY_STATE_FOLDER"),
}


def service_of(names: tuple[str, ...], service: str) -> dict[str, Any]:
    found: dict[str, Any] = load(*names, environment=PLACES)["services"][service]
    return found


@cache
def validator() -> jsonschema_rs.Draft202012Validator:
    folder = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    return jsonschema_rs.Draft202012Validator(json.loads((folder / "compose-spec.json").read_text()))


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_the_files_follow_the_specification(names: tuple[str, ...]) -> None:
    assert [error.message for error in validator().iter_errors(load(*names, environment=PLACES))] == []


def test_the_schema_notices_a_slip_of_the_pen() -> None:
    content = load(*MAIN, environment=PLACES)
    content["services"]["worker"]["stop_grace_periode"] = "60s"
    assert not validator().is_valid(content)


@pytest.mark.parametrize(("names", "service"), EVERY)
def test_a_container_can_do_nothing_but_its_work(names: tuple[str, ...], service: str) -> None:
    content = service_of(names, service)
    assert content["read_only"] is True
    assert content["tmpfs"][0].startswith("/tmp:size=")
    assert all(re.fullmatch(r"/[a-z/]+:size=[1-9]\d*[mg]", folder) for folder in content["tmpfs"])
    assert content["cap_drop"] == ["ALL"]
    assert "cap_add" not in content
    assert content["security_opt"] == ["no-new-privileges:true"]
    assert content["ulimits"] == {"core": 0}
    assert content["init"] is True
    assert not {"privileged", "pid", "ipc", "network_mode", "devices", "userns_mode"} & set(content)
    assert set(content["logging"]["options"]) == {"max-size", "max-file"}
    assert content["restart"] == ("no" if service in ONCE else "unless-stopped")
    assert re.fullmatch(r"\d+s", content["stop_grace_period"])


@pytest.mark.parametrize(("names", "service"), EVERY)
def test_a_container_cannot_take_the_machine(names: tuple[str, ...], service: str) -> None:
    content = service_of(names, service)
    assert re.fullmatch(r"[1-9]\d*g", content["mem_limit"])
    assert 64 <= content["pids_limit"] <= 4096
    if service in WORKERS:
        # It may use all processors, but never against the others, whose weight is Docker's default of 1024.
        assert (str(content["cpus"]), content["cpu_shares"]) == ("0", 256)
    else:
        assert 1 <= float(content["cpus"]) <= 2, "more than a small machine has is refused by Docker"
        assert "cpu_shares" not in content


@pytest.mark.parametrize(("names", "service"), [one for one in EVERY if one.values[1] in WORKERS])
def test_a_worker_takes_no_work_without_all_of_the_containment(names: tuple[str, ...], service: str) -> None:
    assert service_of(names, service)["environment"]["ASSAY_SANDBOX"] == "required"
    chosen = load(*names, environment=PLACES | {"ASSAY_SANDBOX": "auto"})["services"][service]
    assert chosen["environment"]["ASSAY_SANDBOX"] == "auto"


def test_limits_can_be_set() -> None:
    names = {"WORKER": "worker", "SERVICE": "service", "DATABASE": "postgres"}
    environment = {f"ASSAY_{name}_MEMORY": "7g" for name in names}
    environment |= {f"ASSAY_{name}_CPUS": "3" for name in names}
    services = load(*MAIN, environment=environment)["services"]
    for service in names.values():
        assert (services[service]["mem_limit"], str(services[service]["cpus"])) == ("7g", "3")


def test_only_the_service_has_the_key_that_signs() -> None:
    services = load(*MAIN)["services"]
    folder = services["service"]["environment"]["ASSAY_SIGNING_FOLDER"]
    holders = {name for name, content in services.items() if "signing" in str(content.get("volumes"))}
    assert holders == {"service"}
    assert f"signing:{folder}" in services["service"]["volumes"]
    assert not any(folder in str(mount) for mount in services["worker"]["volumes"])
    dockerfile = (ROOT / services["service"]["build"]["dockerfile"]).read_text()
    assert f"install -d -o 10001 -g 10001 -m 0700 {folder}" in dockerfile
    box = service_of(BOX, "worker")
    assert "signing" not in str(box["volumes"]) + str(box["environment"])


@pytest.mark.parametrize(("names", "service"), EVERY)
def test_nobody_is_root(names: tuple[str, ...], service: str) -> None:
    content = service_of(names, service)
    if "build" not in content:
        assert content["user"] in {"postgres", "redis"}, "the image's own user, who owns its volume"
        return
    dockerfile = (ROOT / content["build"]["dockerfile"]).read_text()
    assert "user" not in content
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == ["10001:10001"]
    # A new volume takes its owner from the folder in the image.
    assert "install -d -o 10001 -g 10001 -m 0750 /var/lib/assay" in dockerfile


def test_images_of_others_are_named_with_a_version() -> None:
    services = load(*MAIN)["services"].values()
    images = {service["image"] for service in services if "build" not in service}
    assert len(images) == 2
    assert all(re.fullmatch(r"[a-z]+:\d+(\.\d+)*-bookworm", image) for image in images)


@pytest.mark.parametrize(("names", "service"), EVERY)
def test_health_is_checked(names: tuple[str, ...], service: str) -> None:
    content = service_of(names, service)
    if service in ONCE:
        assert "healthcheck" not in content
    else:
        assert set(content["healthcheck"]) == {"test", "interval", "timeout", "retries", "start_period"}


def test_only_the_service_is_published_and_only_on_this_machine() -> None:
    services = load(*MAIN, environment={})["services"]
    assert {name: content["ports"] for name, content in services.items() if "ports" in content} == {
        "service": ["127.0.0.1:8000:8000"]
    }
    networks = load(*MAIN)["networks"]
    assert networks["backend"] == {"internal": True}
    assert {name: content["networks"] for name, content in services.items()} == {
        "postgres": ["backend"],
        "redis": ["backend"],
        "migrate": ["backend"],
        "service": ["backend", "frontend"],
        "worker": ["backend"],
        "textattack": ["backend"],
        "pull": ["outside"],
        "data": ["outside"],
    }


def test_with_worker_boxes_database_and_redis_are_published_on_the_named_address_only() -> None:
    with pytest.raises(Missing, match="ASSAY_PRIVATE_ADDRESS"):
        load(*PRIVATE, environment={})
    services = load(*PRIVATE, environment=PLACES)["services"]
    published = {name: content["ports"] for name, content in services.items() if "ports" in content}
    assert published == {
        "postgres": ["10.0.0.1:5432:5432"],
        "redis": ["10.0.0.1:6379:6379"],
        "service": ["127.0.0.1:8000:8000"],
    }


@pytest.mark.parametrize("names", [MAIN, BOX], ids="+".join)
def test_no_secret_has_a_default(names: tuple[str, ...]) -> None:
    content = load(*names, environment=PLACES)
    assert content["secrets"] == {
        name: {"file": f"./secrets/{name}"} for name in ("assay_database_password", "assay_redis_password")
    }
    for service in content["services"].values():
        assert set(service.get("secrets", [])) <= set(content["secrets"])
        for variable, value in service.get("environment", {}).items():
            assert "PASSWORD" not in variable or value == "/run/secrets/assay_database_password"
            assert "://:" not in str(value)
    example = (ROOT / ".env.example").read_text()
    assert not re.findall(r"PASSWORD\s*=|://[^/\s]*:[^/\s]*@", example)


def test_what_starts_waits_for_what_it_needs() -> None:
    services = load(*MAIN)["services"]
    healthy = {"condition": "service_healthy"}
    needs = {"postgres": healthy, "redis": healthy}
    migrated = {"migrate": {"condition": "service_completed_successfully"}}
    assert services["migrate"]["depends_on"] == {"postgres": healthy}
    assert services["service"]["depends_on"] == services["worker"]["depends_on"] == needs | migrated
    assert "depends_on" not in services["postgres"]
    assert "depends_on" not in services["redis"]


def test_what_is_kept_lies_in_volumes() -> None:
    content = load(*MAIN, environment={})
    assert set(content["volumes"]) == {
        *("database", "redis", "state", "signing", "data", "weights", "published")
    }
    shared = ["state:/var/lib/assay", "data:/data:ro"]
    published = "published:/data-store"
    assert {name: service.get("volumes") for name, service in content["services"].items()} == {
        "postgres": ["database:/var/lib/postgresql/data"],
        "redis": ["redis:/data"],
        "migrate": None,
        "service": [shared[0], "signing:/var/lib/assay-signing", shared[1], f"{published}:ro"],
        "worker": [*shared, "weights:/weights:ro", f"{published}:ro"],
        "textattack": [*shared, "weights:/weights:ro", f"{published}:ro"],
        "pull": ["weights:/weights"],
        "data": ["data:/data:ro", "weights:/weights:ro", published],
    }
    assert not [name for name in ("pull", "data") if "secrets" in content["services"][name]]
    options = content["services"]["redis"]["command"]
    assert options[options.index("--appendonly") + 1] == "yes"
    assert options[options.index("--maxmemory-policy") + 1] == "noeviction"


@pytest.mark.parametrize("names", [MAIN, BOX], ids="+".join)
def test_a_download_is_a_call_of_the_command_line(names: tuple[str, ...]) -> None:
    command, *arguments = service_of(names, "pull")["entrypoint"]
    assert command == "assay"
    options = build_parser().parse_args([*arguments, "timm:resnet50"])
    assert (options.run, options.reference) == (pull, ["timm:resnet50"])


@pytest.mark.parametrize(("names", "state"), [(STAGING, MAIN), (BOX_STAGING, BOX)], ids=["main", "box"])
def test_a_worker_that_stages_writes_to_scratch_folders_alone(
    names: tuple[str, ...], state: tuple[str, ...]
) -> None:
    """Of folders that it does not own it reads the published sets."""
    plain, staging = (service_of(one, "worker") for one in (state, names))
    own = ["scratch-data:/data", "scratch-weights:/weights"]
    others = [one for one in plain["volumes"] if not re.search(r":/(data|weights):ro$", str(one))]
    assert staging["volumes"] == [*others, *own]
    assert "published:/data-store:ro" in others
    assert (staging["environment"]["ASSAY_STAGE"], plain["environment"].get("ASSAY_STAGE")) == ("yes", None)
    assert staging["environment"]["ASSAY_DATA_STORE"] == "/data-store"
    dockerfile = (ROOT / staging["build"]["dockerfile"]).read_text()
    assert "install -d -o 10001 -g 10001 -m 0755 /data /weights /data-store" in dockerfile
    assert (
        service_of(names, "service" if names == STAGING else "pull")["volumes"]
        == (service_of(state, "service" if names == STAGING else "pull")["volumes"])
    )


def test_publishing_is_a_call_of_the_command_line() -> None:
    content = service_of(MAIN, "data")
    command, *arguments = content["entrypoint"]
    assert command == "assay"
    options = build_parser().parse_args([*arguments, "publish", "imagenet-c"])
    assert (options.action, options.names) == ("publish", ["imagenet-c"])
    settings = service_of(MAIN, "service")["environment"]
    same = [name for name in content["environment"] if name != "ASSAY_STATE" and name != "ASSAY_WEIGHTS_ROOT"]
    assert {name: settings[name] for name in same} == {name: content["environment"][name] for name in same}


def test_gpus_are_reserved_except_with_the_cpu_file() -> None:
    for names, gpus in ((MAIN, True), (BOX, True), (CPU, False), (BOX_CPU, False)):
        for worker in (service_of(names, name) for name in WORKERS):
            assert ("deploy" in worker) is gpus
            assert (worker["build"]["args"].get("DEVICE") == "cpu") is not gpus
            assert worker["shm_size"] == "2gb"


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_the_profile_of_textattack_is_a_worker_in_an_image_of_its_own(names: tuple[str, ...]) -> None:
    worker, other = (dict(service_of(names, name)) for name in WORKERS)
    assert other.pop("profiles") == ["textattack"]
    assert "profiles" not in worker
    builds, images = (worker.pop("build"), other.pop("build")), (worker.pop("image"), other.pop("image"))
    assert other == worker
    assert builds[1] == builds[0] | {"args": builds[0]["args"] | {"EXTRA": "textattack"}}
    assert images[1] == images[0].replace("assay-worker", "assay-worker-textattack")
    lock = f"requirements-{builds[1]['args']['EXTRA']}.txt"
    assert lock in (ROOT / builds[1]["dockerfile"]).read_text()
    assert re.search(r"^textattack==", (ROOT / lock).read_text(), re.MULTILINE)


def test_a_worker_box_runs_the_main_machines_worker() -> None:
    main, box = service_of(MAIN, "worker"), service_of(BOX, "worker")
    elsewhere = {"depends_on", "networks", "volumes", "environment"}
    assert {k: v for k, v in main.items() if k not in elsewhere} == {
        k: v for k, v in box.items() if k not in elsewhere
    }
    addresses = {"ASSAY_DATABASE_URL", "ASSAY_REDIS_URL"}
    ours, theirs = main["environment"], box["environment"]
    assert ours.keys() == theirs.keys()
    assert {key for key in ours if ours[key] != theirs[key]} == addresses
    with pytest.raises(Missing):
        load(*BOX, environment={})


@pytest.mark.parametrize(("names", "service"), EVERY)
def test_every_setting_exists(names: tuple[str, ...], service: str) -> None:
    known = {f"ASSAY_{field.upper()}" for kind in (Settings, WorkerSettings) for field in kind.model_fields}
    given = {name for name in service_of(names, service).get("environment", {}) if name.startswith("ASSAY_")}
    assert given <= known


def test_the_example_lists_every_variable() -> None:
    used = set().union(*map(variables, FILES))
    listed = set(re.findall(r"^#?([A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert listed == used | OF_DOCKER
    settings = {
        f"ASSAY_{field.upper()}" for kind in (Settings, WorkerSettings) for field in kind.model_fields
    }
    assert used <= OF_THE_FILES | settings

"""The Helm chart: valid by the schemas of Kubernetes, KEDA and Kueue, restricted, closed to the network, and
without secrets. No API server has seen it; tests/e2e/test_chart_start.py runs its commands.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from assay.service.api.authentication import GATEWAY_PATH
from assay.service.app import create_app
from assay.service.settings import Settings
from assay.workers.containment.limits import machine_memory
from assay.workers.settings import WorkerSettings
from tests.support.chart import (
    CHART,
    INGRESS,
    LEAST,
    ROOT,
    SETS,
    STORE_PODS,
    environment,
    kinds,
    pods,
    rendered,
    rendered_with,
    run,
    secret_variables,
    with_values,
)
from tests.support.compose import load

CUSTOM = json.loads((ROOT / "tests" / "support" / "custom_kinds.json").read_text())
VERSIONS = ("1.28", "1.33", "1.37")
BOTH = {"app.kubernetes.io/name": "assay", "app.kubernetes.io/instance": "lab"}
# Of the object store (`files`): settings of the service where it has that store.
OBJECT_STORE = {"ASSAY_FILES", "ASSAY_S3_ENDPOINT", "ASSAY_S3_REGION"}
DNS = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
OTHER_DNS = {
    "to": [{"ipBlock": {"cidr": "169.254.20.10/32"}}],
    "ports": [{"protocol": "UDP", "port": 5353}, {"protocol": "TCP", "port": 5353}],
}
SERVICE = {
    "to": [{"podSelector": {"matchLabels": {**BOTH, "app.kubernetes.io/component": "service"}}}],
    "ports": [{"protocol": "TCP", "port": "http"}],
}
NAMED = {"monitoring": "team"}  # Labels of namespaces that are not their names
every = pytest.mark.parametrize("name", SETS)


def job_of(scaled: dict[str, Any]) -> dict[str, Any]:
    """The Job that KEDA makes."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "lab-worker-", "labels": scaled["metadata"]["labels"]},
        "spec": scaled["spec"]["jobTargetRef"],
    }


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


@every
def test_lint_finds_nothing(name: str) -> None:
    done = run("lint", "--strict", str(CHART), values=SETS[name])
    assert (done.returncode, re.findall(r"\[(?:WARNING|ERROR)\].*", done.stdout)) == (0, [])


@pytest.mark.parametrize("version", VERSIONS)
@every
def test_core_kinds_follow_the_schemas_of_kubernetes(name: str, version: str) -> None:
    checked = [one for one in rendered(name) if one["kind"] not in CUSTOM]
    checked += [job_of(one) for one in kinds(rendered(name), "ScaledJob").values()]
    assert len(checked) >= 9
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)


@every
def test_other_kinds_follow_the_schemas_of_keda_and_kueue(name: str) -> None:
    custom = [one for one in rendered(name) if one["kind"] in CUSTOM]
    assert len(custom) == {"all": 3, "without workers": 0}.get(name, 2)
    for one in custom:
        jsonschema.Draft7Validator(CUSTOM[one["kind"]]).validate(one)


def test_the_schemas_notice_a_slip_of_the_pen() -> None:
    (scaled,) = (copy.deepcopy(one) for one in kinds(rendered("least"), "ScaledJob").values())
    scaled["spec"]["maxReplicas"] = scaled["spec"].pop("maxReplicaCount")
    assert not jsonschema.Draft7Validator(CUSTOM["ScaledJob"]).is_valid(scaled)
    (service,) = (copy.deepcopy(one) for one in kinds(rendered("least"), "Service").values())
    service["spec"]["port"] = service["spec"].pop("ports")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, VERSIONS[-1], strict=True)


@every
def test_every_pod_is_restricted(name: str) -> None:
    """The policy `restricted` of the Pod Security Standards, and more."""
    found = pods(rendered(name))
    assert set(found) == {
        "service",
        "keeper",
        "migration",
        *(["worker"] if name != "without workers" else []),
    }
    for template in found.values():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(spec)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001, "the user of the images, who owns the state"
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        allowed = {"persistentVolumeClaim", "emptyDir", "projected"}
        assert {kind for volume in spec["volumes"] for kind in volume} - {"name"} <= allowed
        assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume)
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert re.search(r":[^/:]*\d", container["image"]), "a version"
        (own,) = spec["containers"]
        assert own["resources"]["limits"]["memory"]
        assert own["resources"]["requests"].keys() >= {"cpu", "memory"}


@every
def test_a_claim_that_must_not_change_is_mounted_read_only(name: str) -> None:
    for template in pods(rendered(name)).values():
        for container in template["spec"]["containers"]:
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            assert mounts["passwords"] == {"name": "passwords", "mountPath": "/run/secrets", "readOnly": True}
            claims = {one["name"] for one in template["spec"]["volumes"] if "persistentVolumeClaim" in one}
            assert all(mounts[one]["readOnly"] for one in claims & {"data", "weights"})


@every
def test_the_chart_has_no_secret_and_names_those_that_exist(name: str) -> None:
    assert not kinds(rendered(name), "Secret")
    keys = {"database": "owner-password"} if name == "authorities" else {}
    stores = [
        {
            "name": f"assay-{store}",
            "items": [{"key": keys.get(store, "password"), "path": f"assay_{store}_password"}],
        }
        for store in ("database", "redis")
    ]
    own = [{"name": "assay-workers", "items": [{"key": "worker", "path": "assay_worker_key"}]}]
    for component, template in pods(rendered(name)).items():
        (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == "passwords"]
        sources = [source.get("secret", {"items": []}) for source in volume["projected"]["sources"]]
        found = [one for one in sources if any(item["path"].startswith("assay_") for item in one["items"])]
        assert found == (own if component == "worker" else stores)
        for container in template["spec"]["containers"]:
            assert not re.search(r"PASSWORD|://[^/@\s]*:[^/@\s]*@", json.dumps(container["env"]))


def test_only_the_service_has_the_key_that_signs() -> None:
    holders = [name for name, one in pods(rendered("all")).items() if "signing" in json.dumps(one)]
    assert holders == ["service"]
    claims = {name: pods(rendered("all"))[name]["spec"]["volumes"] for name in ("service", "keeper")}
    shared = {"name": "state", "persistentVolumeClaim": {"claimName": "shared"}}
    assert all(shared in volumes for volumes in claims.values())
    (made,) = kinds(rendered("all"), "PersistentVolumeClaim").values()
    assert made["metadata"]["name"] == "lab-signing", "the claim that exists is not made again"
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]


@every
def test_every_setting_exists(name: str) -> None:
    known = {f"ASSAY_{field.upper()}" for kind in (Settings, WorkerSettings) for field in kind.model_fields}
    for template in pods(rendered(name)).values():
        for container in template["spec"]["containers"]:
            assert set(environment(container)) - OBJECT_STORE <= known


def test_settings_of_the_values_go_before_those_of_the_chart() -> None:
    values = with_values(
        LEAST, {"keeper": {"settings": {"ASSAY_SANDBOX": "auto", "ASSAY_LEASE_SECONDS": 60}}}
    )
    (keeper,) = pods(rendered_with(values))["keeper"]["spec"]["containers"]
    assert environment(keeper) | {"ASSAY_SANDBOX": "auto", "ASSAY_LEASE_SECONDS": "60"} == environment(keeper)
    (worker,) = pods(rendered_with(values))["worker"]["spec"]["containers"]
    assert environment(worker)["ASSAY_SANDBOX"] == "required"


def test_what_runs_is_what_compose_runs() -> None:
    composed, found = load("docker-compose.yml")["services"], pods(rendered("least"))
    for component, service in {"service": "service", "migration": "migrate", "keeper": "worker"}.items():
        (container,) = found[component]["spec"]["containers"]
        assert container["command"] == composed[service]["command"]
    for component in ("service", "keeper"):
        volumes = {one["name"]: one for one in found[component]["spec"]["volumes"]}
        assert volumes["state"] == {"name": "state", "persistentVolumeClaim": {"claimName": "lab-state"}}
    assert {"name": "state", "emptyDir": {"sizeLimit": "50Gi"}} in found["worker"]["spec"]["volumes"]
    shared = {"name": "shared", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    assert shared in found["worker"]["spec"]["volumes"]


@every
def test_a_worker_knows_the_gateway_alone(name: str) -> None:
    """It has no database, and its evaluator the pod's whole memory."""
    if name == "without workers":
        assert "worker" not in pods(rendered(name))
        return
    (container,) = pods(rendered(name))["worker"]["spec"]["containers"]
    told = environment(container)
    named = "https://nodes.example" if name == "selected" else "http://lab.team.svc"
    assert told["ASSAY_GATEWAY"] == named
    assert told["ASSAY_WORKER_KEY_FILE"] == "/run/secrets/assay_worker_key"
    stores = ("DATABASE", "REDIS", "FILES", "S3", "MODE", "MAX_EVALUATOR_BYTES")
    assert not [one for one in told if any(part in one for part in stores)]
    assert secret_variables(container) == {}
    settings = WorkerSettings(gateway=told["ASSAY_GATEWAY"])
    assert settings.memory_each(1) == machine_memory()
    # The volume is root's, and the worker wants a folder of its own user.
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert Path(told["ASSAY_STATE"]).parent == Path(mounts["state"])


def test_nodes_outside_reach_the_gateway_by_a_name_of_its_own() -> None:
    found = kinds(rendered("objects"), "Ingress")
    assert found.keys() == {"lab", "lab-gateway"}
    spec = found["lab-gateway"]["spec"]
    assert spec["tls"] == [{"hosts": ["nodes.example"], "secretName": "nodes-tls"}]
    (rule,) = spec["rules"]
    assert rule["host"] == "nodes.example"
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [(GATEWAY_PATH, "Prefix")]
    (service,) = pods(rendered("objects"))["service"]["spec"]["containers"]
    assert "nodes.example" in json.loads(environment(service)["ASSAY_ALLOWED_HOSTS"])
    assert kinds(rendered("least"), "Ingress").keys() == {"lab"}


def test_the_object_store_is_known_to_service_and_keeper() -> None:
    told = {
        "ASSAY_FILES": "s3://assay-files/lab",
        "ASSAY_S3_ENDPOINT": "https://minio.example:9000",
        "ASSAY_S3_REGION": "eu-1",
    }
    for component in ("service", "keeper"):
        (container,) = pods(rendered("objects"))[component]["spec"]["containers"]
        assert environment(container).items() >= told.items()
        assert secret_variables(container) == {
            "ASSAY_S3_ACCESS_KEY_ID": {"name": "assay-files", "key": "access-key-id"},
            "ASSAY_S3_SECRET_ACCESS_KEY": {"name": "assay-files", "key": "secret-access-key"},
        }
        (plain,) = pods(rendered("least"))[component]["spec"]["containers"]
        assert not OBJECT_STORE & environment(plain).keys()
        assert secret_variables(plain) == {}


def test_the_migration_comes_before_all_else() -> None:
    annotations = kinds(rendered("least"), "Job")["lab-migration"]["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"


def egress_of(objects: list[dict[str, Any]], component: str) -> list[dict[str, Any]]:
    """All that policies let a component reach."""
    rules = []
    for policy in kinds(objects, "NetworkPolicy").values():
        selector = policy["spec"]["podSelector"]
        assert selector["matchLabels"].items() >= BOTH.items()
        only = selector["matchLabels"].get("app.kubernetes.io/component", component)
        listed = [part for one in selector.get("matchExpressions", []) for part in one["values"]] or [
            component
        ]
        if only == component and component in listed:
            rules += policy["spec"].get("egress", [])
    return rules


def towards(cidr: str, port: int) -> dict[str, Any]:
    return {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"protocol": "TCP", "port": port}]}


@every
def test_nothing_is_reached_but_the_stores(name: str) -> None:
    objects = rendered(name)
    nothing = kinds(objects, "NetworkPolicy")["lab-nothing"]["spec"]
    assert nothing == {"podSelector": {"matchLabels": BOTH}, "policyTypes": ["Ingress", "Egress"]}
    for template in pods(objects).values():
        assert template["metadata"]["labels"].items() >= BOTH.items()
    database, redis = towards("10.0.0.10/32", 5433), towards("10.0.0.11/32", 6379)
    staging = [towards("10.0.0.20/32", 443)] if name == "staged" else []
    hooks = SETS[name].get("service", {}).get("egress", [])
    files = [towards("10.0.0.30/32", 9000)] if name in ("objects", "published") else []
    dns = OTHER_DNS if name == "authorities" else DNS
    ingress: list[dict[str, Any]] = []
    if name == "selected":
        cidrs = [{"ipBlock": {"cidr": one}} for one in ("10.0.0.10/32", "10.0.1.0/24")]
        database = {**database, "to": [*cidrs, STORE_PODS]}
        files = [{"to": [STORE_PODS], "ports": [{"protocol": "TCP", "port": 443}]}]
        ingress = [{"to": [INGRESS], "ports": [{"protocol": "TCP", "port": 443}]}]
    if name != "without workers":
        assert egress_of(objects, "worker") == [dns, SERVICE, *ingress, *files, *staging]
    asked = [SERVICE] if staging else []
    assert egress_of(objects, "keeper") == [dns, *asked, *files, database, redis, *staging]
    assert egress_of(objects, "migration") == [dns, database]
    assert sorted(map(str, egress_of(objects, "service"))) == sorted(
        map(str, [dns, *hooks, *files, database, redis])
    )


def test_only_the_service_is_reached_by_the_ingress_and_the_scaler() -> None:
    for name, callers in {
        "all": ["ingress-nginx", "worker", "keda"],
        "staged": ["worker", "keeper", "keda"],
        "authorities": ["ingress-nginx", "monitoring", "worker", "keda"],
        "objects": ["ingress-nginx", "worker", "keda"],
        "without workers": [],
    }.items():
        policies = kinds(rendered(name), "NetworkPolicy").values()
        (policy,) = [
            one for one in policies if one["spec"].get("ingress") or one["metadata"]["name"] == "lab-callers"
        ]
        assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "service"
        rules = policy["spec"]["ingress"] or []
        assert all(rule["ports"] == [{"protocol": "TCP", "port": "http"}] for rule in rules)
        peers = [peer for rule in rules for peer in rule["from"]]
        assert peers == [
            {"podSelector": {"matchLabels": {**BOTH, "app.kubernetes.io/component": one}}}
            if one in ("worker", "keeper")
            else {"namespaceSelector": {"matchLabels": {NAMED.get(one, "kubernetes.io/metadata.name"): one}}}
            for one in callers
        ]


def test_workers_are_jobs_of_gpus_in_the_queue_of_kueue() -> None:
    scaled = kinds(rendered("all"), "ScaledJob")["lab-worker"]
    assert scaled["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "assay"
    assert kinds(rendered("all"), "LocalQueue")["assay"]["spec"] == {"clusterQueue": "gpus"}
    job = job_of(scaled)["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 18000)
    (container,) = job["template"]["spec"]["containers"]
    end = {"ASSAY_WORKER_IDLE_SECONDS": "300", "ASSAY_WORKER_MAX_SECONDS": "14400"}
    assert environment(container).items() >= end.items()
    spec = job["template"]["spec"]
    assert spec["restartPolicy"] == "Never"
    assert (spec["nodeSelector"], spec["runtimeClassName"]) == ({"gpu": "h100"}, "nvidia")
    assert container["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/mig-1g.10gb": 1}
    assert (
        "kueue.x-k8s.io/queue-name"
        not in kinds(rendered("least"), "ScaledJob")["lab-worker"]["metadata"]["labels"]
    )


def test_the_scaler_asks_for_numbers_that_the_service_always_gives(tmp_path: Path) -> None:
    with TestClient(create_app(Settings(state=tmp_path)), base_url="http://localhost") as client:
        text = client.get("/metrics").text
    given = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    scaled = kinds(rendered("least"), "ScaledJob")["lab-worker"]["spec"]
    assert scaled["scalingStrategy"] == {"strategy": "default", "multipleScalersCalculation": "sum"}
    asked = {trigger["name"]: trigger["metadata"] for trigger in scaled["triggers"]}
    assert {name: metadata["targetValue"] for name, metadata in asked.items()} == {
        "queued": "4",
        "running": "1",
    }
    for metadata in asked.values():
        (wanted,) = text_string_to_metric_families(f"{metadata['valueLocation']} 0\n")
        (sample,) = wanted.samples
        assert given[sample.name, tuple(sorted(sample.labels.items()))] == 0
    hosts = json.loads(
        environment(pods(rendered("least"))["service"]["spec"]["containers"][0])["ASSAY_ALLOWED_HOSTS"]
    )
    assert {re.sub(r"https?://([^/]+)/.*", r"\1", one["url"]) for one in asked.values()} == {"lab.team.svc"}
    assert {"lab.team.svc", "assay.example", "localhost"} <= set(hosts)


def test_data_sets_are_a_claim_or_staged() -> None:
    found = pods(rendered("staged"))
    for component in ("worker", "keeper"):
        (staging,) = found[component]["spec"]["initContainers"]
        assert staging["command"] == ["cp", "-r", "/sets/.", "/data"]
        assert {"name": "data", "emptyDir": {"sizeLimit": "200Gi"}} in found[component]["spec"]["volumes"]
        assert environment(staging) == {
            "ASSAY_GATEWAY": "http://lab.team.svc",
            "ASSAY_WORKER_KEY_FILE": "/run/secrets/assay_worker_key",
        }
        mounts = {one["mountPath"]: one["name"] for one in staging["volumeMounts"]}
        assert mounts.keys() == {"/data", "/tmp", "/run/secrets"}
        (held,) = [
            one for one in found[component]["spec"]["volumes"] if one["name"] == mounts["/run/secrets"]
        ]
        (source,) = held["projected"]["sources"]
        assert source["secret"] == {
            "name": "assay-workers",
            "items": [{"key": "worker", "path": "assay_worker_key"}],
        }
    assert "ASSAY_DATA_ROOT" not in environment(found["service"]["spec"]["containers"][0])
    claimed = pods(rendered("all"))
    assert environment(claimed["service"]["spec"]["containers"][0])["ASSAY_DATA_ROOT"] == "/data"
    assert "initContainers" not in claimed["worker"]["spec"]


def test_published_data_are_a_claim_that_the_keeper_writes_and_the_service_reads() -> None:
    told = {
        "ASSAY_DATA_STORE": "/data-store",
        "ASSAY_DATA_BLOBS": "s3://sets/lab",
        "ASSAY_S3_ENDPOINT": "https://minio.example:9000",
    }
    found = pods(rendered("published"))
    for component, read_only in (("service", True), ("keeper", False)):
        (container,) = found[component]["spec"]["containers"]
        assert environment(container).items() >= told.items()
        assert "ASSAY_FILES" not in environment(container)
        assert secret_variables(container).keys() == {"ASSAY_S3_ACCESS_KEY_ID", "ASSAY_S3_SECRET_ACCESS_KEY"}
        mount = {"name": "published", "mountPath": "/data-store", "readOnly": read_only}
        assert mount in container["volumeMounts"]
        claim = {"name": "published", "persistentVolumeClaim": {"claimName": "published"}}
        assert claim in found[component]["spec"]["volumes"]
    assert "published" not in json.dumps(found["worker"]), "it asks the gateway"


def test_workers_stage_into_folders_that_end_with_them() -> None:
    found = pods(rendered("published"))
    for component in ("worker", "keeper"):
        (container,) = found[component]["spec"]["containers"]
        told = environment(container)
        assert (told["ASSAY_STAGE"], told["ASSAY_STAGE_BYTES"]) == ("yes", str(200 * 2**30 * 4 // 5))
        for name, variable in (("data", "ASSAY_DATA_ROOT"), ("weights", "ASSAY_WEIGHTS_ROOT")):
            assert {"name": name, "mountPath": told[variable]} in container["volumeMounts"]
            folder = {"name": name, "emptyDir": {"sizeLimit": "200Gi"}}
            assert folder in found[component]["spec"]["volumes"]
    claimed = pods(rendered_with(with_values(SETS["published"], {"data": {"claim": "sets"}})))
    (keeper,) = claimed["keeper"]["spec"]["containers"]
    assert "ASSAY_STAGE" not in environment(keeper), "it has the claims, and publishes from them"
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in keeper["volumeMounts"]
    (worker,) = claimed["worker"]["spec"]["containers"]
    assert environment(worker)["ASSAY_STAGE"] == "yes"
    assert "ASSAY_STAGE" not in environment(pods(rendered("all"))["worker"]["spec"]["containers"][0])


@pytest.mark.parametrize("size", ["900Mi", "3Ti"])
def test_copies_leave_a_fifth_of_their_folder(size: str) -> None:
    values = with_values(SETS["published"], {"data": {"scratch": size}})
    (worker,) = pods(rendered_with(values))["worker"]["spec"]["containers"]
    whole = {"900Mi": 900 * 2**20, "3Ti": 3 * 2**40}[size]
    assert (
        WorkerSettings(stage_bytes=int(environment(worker)["ASSAY_STAGE_BYTES"])).stage_bytes
        == whole * 4 // 5
    )


def test_under_ten_values_must_be_set() -> None:
    done = run("template", "lab", str(CHART), values={})
    assert done.returncode != 0
    missing = re.findall(r"at '(?:/(\w+))?': missing propert(?:y|ies) (.*)", done.stderr)
    named = {part + key for part, keys in missing for key in re.findall(r"'(\w+)'", keys)}
    parts = ("image", "database", "redis", "workers")
    stated = {"host", *(f"{part}{key}" for part in parts for key in LEAST[part])}
    assert named == stated
    assert len(named) == 9


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"database": {"url": "postgresql+psycopg://assay:hunter2hunter2@db/assay"}}, "/database/url"),
        ({"database": {"url": "sqlite:///x"}}, "/database/url"),
        ({"redis": {"url": "redis://:hunter2@db/0"}}, "/redis/url"),
        ({"database": {"cidr": "postgres"}}, "/database/cidr"),
        ({"image": {"tag": "latest"}}, "/image/tag"),
        ({"workers": {"maximum": 3}}, "additional properties 'maximum' not allowed"),
        ({"workers": {"max": 0}}, "/workers/max"),
        (
            {"workers": {"settings": {"ASSAY_DATABASE_PASSWORD": "x"}}},
            "propertyName 'ASSAY_DATABASE_PASSWORD'",
        ),
        ({"ingress": {"from": []}}, "/ingress/from"),
        ({"files": {"url": "s3://assay-files"}}, "/files/secret"),
        ({"files": {"url": "/srv/files"}}, "/files/url"),
        ({"gateway": {"host": "https://nodes.example"}}, "/gateway/host"),
        ({"kueue": {"clusterQueue": "gpus"}}, "/kueue"),
        ({"service": {"replicas": 2}}, "/storage/signing/accessMode"),
        ({"database": {"ca": {"secret": "a", "configMap": "b"}}}, "/database/ca"),
        ({"database": {"ca": {"key": "ca.crt"}}}, "/database/ca"),
        (
            {"database": {"ca": {"secret": "a"}, "url": "postgresql+psycopg://assay@db/assay"}},
            "/database/url",
        ),
        ({"redis": {"ca": {"secret": "a"}, "url": "redis://db/0"}}, "/redis/url"),
        ({"dns": {"to": []}}, "/dns/to"),
        ({"metrics": {"from": [{}]}}, "/metrics/from"),
        (
            {"data": {"claim": "sets", "staging": {"image": "a/b:1", "command": ["x"], "size": "1Gi"}}},
            "/data/staging",
        ),
        ({"data": {"staging": {"image": "a/b:1"}}}, "'command', 'size' required"),
        ({"data": {"scratch": "200Gi"}}, "/data/published"),
        ({"data": {"published": {"blobs": "s3://sets"}}}, "/data/published/claim"),
        ({"data": {"published": {"claim": "x", "blobs": "s3://sets"}}}, "/files/secret"),
        ({"data": {"published": {"claim": "x", "blobs": "/srv"}}}, "/data/published/blobs"),
        ({"data": {"scratch": "200"}}, "/data/scratch"),
        (
            {
                "data": {
                    "published": {"claim": "x"},
                    "scratch": "1Gi",
                    "staging": {"image": "a/b:1", "command": ["x"], "size": "1Gi"},
                }
            },
            "/data/staging",
        ),
    ],
)
def test_a_wrong_value_is_named(over: dict[str, Any], said: str) -> None:
    done = run("template", "lab", str(CHART), values=with_values(LEAST, over))
    assert done.returncode != 0
    assert said in done.stderr


def test_the_chart_is_of_this_release() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_page_and_the_notes_of_an_installation_make_the_same_keys() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"```yaml\n(image:.*?)```", page, re.DOTALL)
    asked = ("install", "lab", str(CHART), "--namespace", "assay", "--dry-run=client")
    notes = run(*asked, values=yaml.safe_load(text)).stdout.partition("NOTES:")[2]
    commands = (
        r"(?:kubectl -n assay .* (?:keys create|secret generic assay-workers) |export ASSAY_URL=)[^#\n]*"
    )
    told, written = ({one.strip() for one in re.findall(commands, where)} for where in (notes, page))
    assert told == written
    assert len(told) == 5
    assert "--name me --scope admin" in notes, "`assay workers drain` needs it"


def test_the_values_of_the_page_are_valid() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"```yaml\n(image:.*?)```", page, re.DOTALL)
    values = yaml.safe_load(text)
    assert len(pods(rendered_with(values))) == 4
    assert values.keys() == {*LEAST, "ingress"}

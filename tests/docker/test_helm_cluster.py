"""The Helm chart in its operator's cluster: certificates, volumes of one node, proxies and numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import make_url

from assay.service.settings import Settings
from tests.support.chart import (
    CHART,
    LEAST,
    PLACED,
    SETS,
    STORE_PODS,
    environment,
    kinds,
    pods,
    rendered,
    rendered_with,
    run,
    with_values,
)


def own(objects: list[dict[str, Any]], component: str) -> dict[str, Any]:
    """The container of a part."""
    (container,) = pods(objects)[component]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def volumes(objects: list[dict[str, Any]], component: str) -> dict[str, dict[str, Any]]:
    return {one.pop("name"): one for one in map(dict, pods(objects)[component]["spec"]["volumes"])}


@pytest.mark.parametrize("component", ["service", "keeper", "migration"])
def test_authorities_lie_where_the_addresses_say(component: str) -> None:
    objects = rendered("authorities")
    sources = volumes(objects, component)["passwords"]["projected"]["sources"]
    files = {item["path"]: item["key"] for one in sources for kind in one.values() for item in kind["items"]}
    assert files == {
        "assay_database_password": "owner-password",
        "database-ca.crt": "ca.crt",
        "assay_redis_password": "password",
        "redis-ca.crt": "redis.pem",
    }
    assert {
        "secret": {"name": "postgres-tls", "items": [{"key": "ca.crt", "path": "database-ca.crt"}]}
    } in sources
    assert [one["configMap"]["name"] for one in sources if "configMap" in one] == ["authorities"]
    told = environment(own(objects, component))
    query = make_url(told["ASSAY_DATABASE_URL"]).query
    assert query == {"sslmode": "verify-full", "sslrootcert": "/run/secrets/database-ca.crt"}
    assert told["ASSAY_REDIS_URL"] == "rediss://redis.example/0?ssl_ca_certs=/run/secrets/redis-ca.crt"


def test_without_authorities_addresses_are_as_given() -> None:
    told = environment(own(rendered("least"), "keeper"))
    assert told["ASSAY_DATABASE_URL"] == LEAST["database"]["url"]
    assert told["ASSAY_REDIS_URL"] == LEAST["redis"]["url"]


@pytest.mark.parametrize("name", SETS)
def test_no_second_pod_waits_for_a_volume_of_one_node(name: str) -> None:
    """A Deployment with a claim that is ReadWriteOnce ends its pod before it starts another."""
    objects = rendered(name)
    modes = {
        claim: one["spec"]["accessModes"] for claim, one in kinds(objects, "PersistentVolumeClaim").items()
    }
    for deployment in kinds(objects, "Deployment").values():
        spec = deployment["spec"]
        held = [
            one["persistentVolumeClaim"]["claimName"]
            for one in spec["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in one
        ]
        if any(modes.get(claim) == ["ReadWriteOnce"] for claim in held):
            assert spec["strategy"] == {"type": "Recreate"}
            assert spec["replicas"] == 1
    rolling = {"type": "RollingUpdate"} if name == "all" else {"type": "Recreate"}
    assert kinds(objects, "Deployment")["lab-service"]["spec"]["strategy"] == rolling


def test_with_an_object_store_nothing_is_shared() -> None:
    objects = rendered("objects")
    assert kinds(objects, "PersistentVolumeClaim").keys() == {"lab-signing"}
    for component in ("service", "keeper"):
        assert volumes(objects, component)["state"] == {"emptyDir": {"sizeLimit": "100Gi"}}
    assert kinds(rendered("least"), "PersistentVolumeClaim").keys() == {"lab-signing", "lab-state"}
    named = rendered_with(with_values(SETS["objects"], {"storage": {"state": {"claim": "shared"}}}))
    assert volumes(named, "keeper")["state"] == {"persistentVolumeClaim": {"claimName": "shared"}}


def test_prometheus_may_ask_a_pod_by_its_address() -> None:
    container = own(rendered("least"), "service")
    assert container["env"][0] == {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    given = environment(container)["ASSAY_ALLOWED_HOSTS"]
    for address in ("10.4.0.7", "fd00::7"):  # as the kubelet puts it in
        hosts = json.loads(given.replace("$(POD_IP)", address))
        assert address in Settings(allowed_hosts=hosts).allowed_hosts


def test_the_service_takes_the_connections_of_all_its_workers() -> None:
    assert environment(own(rendered("authorities"), "service"))["ASSAY_MAX_CONNECTIONS"] == "1400"
    for values in ({}, {"workers": {"max": 300, "enabled": False}}):
        container = own(rendered_with(with_values(LEAST, values)), "service")
        assert "ASSAY_MAX_CONNECTIONS" not in environment(container)


def test_large_bodies_pass_the_ingresses() -> None:
    for ingress in kinds(rendered("objects"), "Ingress").values():
        annotations = ingress["metadata"]["annotations"]
        assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == "0"
        assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) >= 60
    values = {"ingress": {"className": "haproxy"}, "gateway": {"host": "nodes.example"}}
    classes = kinds(rendered_with(with_values(LEAST, values)), "Ingress").values()
    assert [one["spec"]["ingressClassName"] for one in classes] == ["haproxy", "haproxy"]


def test_the_keeper_stages_with_the_key_of_workers_if_there_is_one() -> None:
    alone = with_values(SETS["staged"], {"workers": {"enabled": False}})
    assert volumes(rendered_with(alone), "keeper")["key"]["projected"]["sources"][0]["secret"]["name"] == (
        "assay-workers"
    )
    del alone["workers"]["key"]
    (staging,) = pods(rendered_with(alone))["keeper"]["spec"]["initContainers"]
    assert "env" not in staging
    assert [one["name"] for one in staging["volumeMounts"]] == ["data", "tmp"]
    assert "key" not in volumes(rendered_with(alone), "keeper")


def test_a_store_may_be_pods_alone() -> None:
    values = with_values(LEAST, {"redis": {"to": [STORE_PODS]}})
    del values["redis"]["cidr"]
    policy = kinds(rendered_with(values), "NetworkPolicy")["lab-redis"]["spec"]
    assert policy["egress"] == [{"to": [STORE_PODS], "ports": [{"protocol": "TCP", "port": 6379}]}]


@pytest.mark.parametrize("name", SETS)
def test_a_pod_asks_for_the_disk_that_its_folders_may_take(name: str) -> None:
    units = {"Mi": 1, "Gi": 1024}
    for component, template in pods(rendered(name)).items():
        folders = [one.get("emptyDir", {}) for one in template["spec"]["volumes"]]
        sizes = [one["sizeLimit"] for one in folders if one and "medium" not in one]
        asked = template["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"]
        most = sum(int(size[:-2]) * units[size[-2:]] for size in sizes)
        if (name, component) == ("selected", "keeper"):
            assert asked == "20Gi", "the value's"
        else:
            assert int(asked[:-2]) * units[asked[-2:]] == most > 0


def test_pods_are_placed_by_their_values() -> None:
    found = pods(rendered("selected"))
    for component in ("service", "keeper", "worker"):
        assert found[component]["spec"].items() >= PLACED.items()
        assert not PLACED.keys() & pods(rendered("least"))[component]["spec"].keys()
    assert found["service"]["spec"]["nodeSelector"] == {"pool": "cpu"}


def test_the_chart_leaves_the_share_of_repeated_shards_to_the_service() -> None:
    """The gateway takes no worker's word for it."""
    for name in SETS:
        for template in pods(rendered(name)).values():
            assert "ASSAY_REPEAT" not in environment(template["spec"]["containers"][0])


@pytest.mark.parametrize(
    ("cidr", "told"), [("0.0.0.0/0", True), (["10.0.0.0/8", "::/0"], True), ("10.0.0.0/8", False)]
)
def test_the_notes_tell_of_a_store_that_is_everywhere(cidr: str | list[str], told: bool) -> None:
    values = with_values(SETS["objects"], {"files": {"cidr": cidr}})
    done = run("install", "lab", str(CHART), "--dry-run=client", values=values)
    assert ("files: the pods that use it reach every address" in done.stdout.partition("NOTES:")[2]) == told
    assert "redis: the pods" not in done.stdout

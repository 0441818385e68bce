"""The Helm chart as rendered: by `make helm`'s program, with several sets of values."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "docker" / "helm" / "assay"
# All that must be set.
LEAST: dict[str, Any] = {
    "image": {"registry": "registry.example/assay"},
    "host": "assay.example",
    "database": {
        "url": "postgresql+psycopg://assay@postgres.example:5433/assay?sslmode=verify-full",
        "secret": "assay-database",
        "cidr": "10.0.0.10/32",
    },
    "redis": {"url": "rediss://redis.example/0", "secret": "assay-redis", "cidr": "10.0.0.11/32"},
    "workers": {"key": "assay-workers"},
}
STORE_PODS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "stores"}},
    "podSelector": {"matchLabels": {"app": "store"}},
}
INGRESS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
ZONE = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}
PLACED: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ZONE]}}
    },
    "priorityClassName": "research",
}


def with_values(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values, the later ones over the earlier ones."""
    merged = copy.deepcopy(base)
    for name, value in over.items():
        merged[name] = with_values(merged[name], value) if isinstance(merged.get(name), dict) else value
    return merged


SETS: dict[str, dict[str, Any]] = {
    "least": LEAST,
    "all": with_values(
        LEAST,
        {
            "image": {"tag": "0.1.0-rc1", "pullSecrets": [{"name": "registry"}]},
            "service": {
                "replicas": 2,
                "settings": {"ASSAY_MAX_QUEUED_JOBS": 100},
                "egress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}],
            },
            "ingress": {
                "className": "nginx",
                "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
                "tlsSecret": "assay-tls",
                "trustedProxies": ["10.2.0.0/16"],
            },
            "keeper": {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"operator": "Exists"}]},
            "workers": {
                "max": 40,
                "gpu": {"resource": "nvidia.com/mig-1g.10gb"},
                "nodeSelector": {"gpu": "h100"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "runtimeClassName": "nvidia",
                "settings": {"ASSAY_CORES": 4},
            },
            "kueue": {"queue": "assay", "clusterQueue": "gpus"},
            "storage": {
                "state": {"claim": "shared"},
                "signing": {"accessMode": "ReadWriteMany", "className": "nfs"},
                "weights": {"claim": "weights"},
            },
            "data": {"claim": "sets"},
        },
    ),
    "staged": with_values(
        LEAST,
        {
            "ingress": {"enabled": False},
            "data": {
                "staging": {
                    "image": "registry.example/sets:3",
                    "command": ["cp", "-r", "/sets/.", "/data"],
                    "size": "200Gi",
                    "cidr": "10.0.0.20/32",
                }
            },
        },
    ),
    "objects": with_values(
        LEAST,
        {
            "gateway": {"host": "nodes.example", "className": "nginx", "tlsSecret": "nodes-tls"},
            "files": {
                "url": "s3://assay-files/lab",
                "endpoint": "https://minio.example:9000",
                "region": "eu-1",
                "secret": "assay-files",
                "cidr": "10.0.0.30/32",
            },
        },
    ),
    "published": with_values(
        LEAST,
        {
            "files": {
                "endpoint": "https://minio.example:9000",
                "secret": "assay-files",
                "cidr": "10.0.0.30/32",
            },
            "storage": {"weights": {"claim": "weights"}},
            "data": {"published": {"claim": "published", "blobs": "s3://sets/lab"}, "scratch": "200Gi"},
        },
    ),
    "authorities": with_values(
        LEAST,
        {
            "database": {"secretKey": "owner-password", "ca": {"secret": "postgres-tls"}},
            "redis": {"ca": {"configMap": "authorities", "key": "redis.pem"}},
            "metrics": {"from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
            "dns": {"to": [{"ipBlock": {"cidr": "169.254.20.10/32"}}], "port": 5353},
            "workers": {"max": 300},
        },
    ),
    "selected": with_values(
        LEAST,
        {
            "service": {"nodeSelector": {"pool": "cpu"}, **PLACED},
            "database": {"cidr": ["10.0.0.10/32", "10.0.1.0/24"], "to": [STORE_PODS]},
            "files": {"url": "s3://assay-files", "secret": "assay-files", "to": [STORE_PODS]},
            "gateway": {"host": "nodes.example", "tlsSecret": "nodes-tls"},
            "keeper": {"resources": {"requests": {"ephemeral-storage": "20Gi"}}, **PLACED},
            "workers": {"gateway": {"url": "https://nodes.example", "to": [INGRESS]}, **PLACED},
            "data": {"published": {"claim": "published"}, "scratch": "200Gi"},
        },
    ),
    "without workers": with_values(LEAST, {"ingress": {"enabled": False}, "workers": {"enabled": False}}),
}


@cache
def helm() -> str:
    """Path of the program; skips without it."""
    found = os.environ.get("ASSAY_HELM") or shutil.which("helm")
    made = ROOT / "build" / "helm"
    if found is None and not made.is_file():
        pytest.skip("no helm: `make helm`")
    return found or str(made)


def run(*arguments: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Calls Helm on the chart, with the values on its standard input."""
    command = [helm(), *arguments, "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60)


@cache
def rendered(name: str) -> list[dict[str, Any]]:
    """The objects of a set of values, of the release `lab` in the namespace `team`."""
    return rendered_with(SETS[name])


def rendered_with(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects for these values."""
    done = run("template", "lab", str(CHART), "--namespace", "team", values=values)
    assert done.returncode == 0, done.stderr
    return [content for content in yaml.safe_load_all(done.stdout) if content]


def kinds(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every pod template by its component."""
    found = {}
    for one in objects:
        holder = one["spec"].get("jobTargetRef", one["spec"]) if "spec" in one else {}
        if "template" in holder:
            template = holder["template"]
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return found


def environment(container: dict[str, Any]) -> dict[str, str]:
    """A container's variables, without those of secrets."""
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


def secret_variables(container: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The secret and its key of each variable that has one."""
    found = {item["name"]: item.get("valueFrom", {}).get("secretKeyRef") for item in container["env"]}
    return {name: key for name, key in found.items() if key}

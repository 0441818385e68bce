"""Cluster under the storm whose nodes have an address and a key: a service without workers, and its nodes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.service.store.store import Store
from tests.storm.cluster import Cluster
from tests.storm.disguise import Disguise
from tests.storm.site import Servers

# Tenants of the nodes' keys: the service prefixes the ids of their workers with them.
NODES, LIARS = "nodes", "liars"
OF_SERVICE = {"ASSAY_WORKERS": "0", "ASSAY_REQUIRE_KEYS": "yes"}


class GatewayCluster(Cluster):
    """One service, and boxes of one node each, which see neither its database nor its folder.

    The service is the API process of the cluster and its only reaper. Arguments as `Cluster`.
    """

    nodes_of_box = 1
    box_module, api_module = "tests.storm.gateway_node", "tests.storm.gateway_service"

    def __init__(
        self, servers: Servers, name: str, folder: Path, workers: int, words: str, **chosen: Any
    ) -> None:
        self._states = folder / "nodes"
        super().__init__(servers, name, folder, workers, words, **{**chosen, "apis": 1})

    def nodes(self) -> list[int]:
        """The process of each honest node: its box."""
        return self.boxes()

    def supervisors(self) -> list[int]:
        """The process of each honest node: it claims shards and drives the evaluator."""
        return self.boxes()

    def kill_box(self, box: int) -> None:
        """kill -9 of a node; its evaluator must notice on its own."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(box, signal.SIGKILL)

    def spools(self) -> list[Path]:
        """The folders in which outcomes wait for the gateway."""
        return sorted(self._states.glob("*/spool"))

    def _make_keys(self, store: Store) -> None:
        super()._make_keys(store)
        self._worker_keys = {
            tenant: store.keys.create(tenant, ["worker"], tenant=tenant)[1] for tenant in (NODES, LIARS)
        }
        self._environment["ASSAY_MODE"] = "embedded"
        self._direct |= OF_SERVICE

    def _owner(self, worker: str) -> str:
        return worker.partition(":")[2]

    def _own_of_box(self, name: str, disguise: Disguise | None) -> Mapping[str, str]:
        return {
            "ASSAY_GATEWAY": f"http://127.0.0.1:{self._ports[0]}",
            "ASSAY_WORKER_KEY": self._worker_keys[NODES if disguise is None else LIARS],
            "ASSAY_STATE": str(self._states / name),
            "ASSAY_NODE": name,
        }

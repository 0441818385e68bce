"""Health routes: liveness, readiness and version of the process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from assay.service.api.deps import CatalogDep, SettingsDep, StrictRouter, SystemStoreDep
from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.findings.data_disagreements import counted
from assay.service.contract.fleet.version import ServiceVersion
from assay.service.contract.fleet.worker_records import refused_parts
from assay.service.contract.problems import readable
from assay.service.contract.results import Answer
from assay.service.store.fleet.identities import Refused
from assay.service.store.live import redis_answers

API_VERSION = "v1"
MAX_SAID, MAX_SHOWN = 300, 100  # Characters of what a worker says, and how many such texts
PARAMETERS = re.compile(r"\(.*(?= has the content )", re.DOTALL)

router = StrictRouter(tag="health")


class Health(Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Answer):
    """Jobs can be stored. Other missing parts are reported, and do not make the service unready.

    `redis` is unused in the embedded mode. `workers_online` counts supervisors that could run a job, by
    device class, `workers_with_another_catalog` workers with other components than this service offers.
    `containment_missing` counts workers by the missing part of the containment (docs/containment.md),
    `workers_refusing` workers that take no work for that reason. `other_data` counts workers by data set that
    differs from a job's plan, with both hashes; `data_disagreements` names sets that workers in service have
    with several contents. `workers_cordoned` counts workers that administrators have taken out of service,
    `workers_unfit` workers that failed their self-test, or whose program was exchanged; `unfit` counts them
    by the reason. `workers_unknown` counts workers by code that is neither this service's release nor
    allowed: they take no work. `artifacts`: the service can write to the store of the jobs' files, which
    `file_store` names.
    """

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    redis: Literal["ok", "away", "unused"]
    artifacts: Literal["writable", "not_writable"]
    file_store: str = Field("", description="the store of the jobs' files, and what is wrong with it")
    wrong_files: int = Field(0, description="that gave other bytes than were stored; the log names them")
    workers_online: dict[str, int]
    workers_with_another_catalog: int = 0
    containment_missing: dict[str, int] = Field({}, description="part of the containment -> workers")
    containment_optional: dict[str, int] = Field(
        {}, description="missing part that `required` does without -> workers"
    )
    workers_refusing: int = 0
    other_data: dict[str, int] = Field({}, description="data set and both hashes -> workers")
    data_disagreements: list[str] = Field([], description="data set, and workers by the hash of its content")
    workers_cordoned: int = 0
    workers_unfit: int = 0
    unfit: dict[str, int] = Field({}, description="device class and fault -> workers")
    workers_unknown: dict[str, int] = Field({}, description="code that waits for an administrator -> workers")


@router.get("/healthz", summary="Liveness")
def healthz() -> Health:
    """Liveness, without any dependency: for the process manager that restarts a hung service."""
    return Health()


@router.get("/readyz", summary="Readiness")
def readyz(store: SystemStoreDep, settings: SettingsDep, catalog: CatalogDep) -> Readiness:
    """Readiness: 503 when the database is away. Nothing else makes it fail: jobs queue, and files wait."""
    store.ping()
    online = {device: store.workers.online(device) for device in ("auto", "cpu", "cuda")}
    redis: Literal["ok", "away", "unused"] = "unused"
    if settings.redis:
        redis = "ok" if redis_answers(settings.redis) else "away"
    contained = store.workers.containments()
    fault = settings.file_store.fault()
    cordoned, unfit = store.workers.out_of_service()
    missing = Counter(part for one in contained for part in one["missing"])
    return Readiness(
        redis=redis,
        artifacts="not_writable" if fault else "writable",
        file_store=f"{settings.file_store.kind}: {fault or 'ok'}",
        wrong_files=settings.file_store.wrong_files(),
        workers_online=online,
        containment_missing=dict(sorted(missing.items())),
        containment_optional=dict(Counter(part for one in contained for part in one.get("optional", ()))),
        workers_refusing=sum(bool(refused_parts(one["mode"], one["missing"])) for one in contained),
        # Without the parameters of data sets: jobs write them, and no key is asked for here.
        other_data=_counted(PARAMETERS.sub("", text) for text in store.workers.other_data()),
        data_disagreements=sorted({counted(*one) for one in store.workers.disagreements().items()}),
        workers_cordoned=cordoned,
        workers_unfit=unfit,
        unfit=_counted(store.workers.unfit()),
        workers_unknown={
            _unknown(digest, found): found.workers
            for digest, found in store.workers.refused().items()
            if found.workers
        },
        workers_with_another_catalog=sum(other != catalog.digest for other in store.workers.catalogs()),
    )


@router.get("/version", summary="Version")
def version(store: SystemStoreDep, catalog: CatalogDep) -> ServiceVersion:
    """The versions of the service and of its API, and the code of its workers."""
    return ServiceVersion(
        name=DISTRIBUTION,
        version=version_of(DISTRIBUTION) or "",
        api=API_VERSION,
        catalog=catalog.digest,
        identities=store.workers.identities(),
    )


def _counted(said: Iterable[str]) -> dict[str, int]:
    """Workers by what they say of themselves, bounded: a node may say anything, and no key is asked for."""
    return dict(Counter(readable(text, MAX_SAID) for text in said).most_common(MAX_SHOWN))


def _unknown(digest: str, found: Refused) -> str:
    waits = "is withdrawn by an administrator" if found.withdrawn else "waits for an administrator"
    allow = f": assay workers allow {digest}" if digest else ""
    return f"identity {digest or 'none'} ({found.release}) {waits}{allow}"

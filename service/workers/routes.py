"""Routes of workers, for keys with the scope `admin`: what they are, and taking them out of service."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path
from pydantic import ValidationError

from assay.service.api.authentication import WORKERS_PATH
from assay.service.api.caller import ActorDep, Caller, CallerDep, administrator
from assay.service.api.deps import (
    BodyDep,
    SettingsDep,
    StrictRouter,
    SystemStoreDep,
    json_body,
    validated,
)
from assay.service.api.errors import documented
from assay.service.contract.errors import MalformedJson, NotFound, UnsupportedMediaType
from assay.service.contract.fleet.release import release_text
from assay.service.contract.fleet.worker_records import Gauges, refused_parts
from assay.service.contract.fleet.workers import (
    DIGEST_PATTERN,
    IdentityStatus,
    WorkerCordon,
    WorkerDevice,
    WorkerState,
    WorkerStatus,
)
from assay.service.contract.results import Page
from assay.service.contract.times import iso, iso_or_none
from assay.service.store.fleet.cordons import Cordon, ListedWorker
from assay.service.store.fleet.fleets import Fleet
from assay.service.store.fleet.identities import ALLOWED, WITHDRAWN, Ruling
from assay.service.workers.fleet_wire import NAME_PATTERN, FleetReport, FleetStatus

router = StrictRouter(prefix=WORKERS_PATH, tag="workers", dependencies=[Depends(administrator)])
fleets = StrictRouter(prefix=f"{WORKERS_PATH}/fleets", tag="workers", dependencies=[Depends(administrator)])
ROUTERS, BEFORE = (router, fleets), "keys"
WorkerName = Annotated[
    str, Path(min_length=1, max_length=300, description="the worker's name or id", examples=["box:gpu0"])
]
FleetName = Annotated[str, Path(pattern=NAME_PATTERN, description="the fleet's name", examples=["a100"])]
Digest = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="digest of an identity", examples=["7eb77f24b63ba2d7"])
]


@router.get("", summary="List the workers")
def list_workers(store: SystemStoreDep) -> Page[WorkerStatus]:
    """All workers by name: online now, online within a day, or cordoned."""
    return Page(items=[worker_view(one) for one in store.cordons.workers()])


@router.post("/{name}/cordon", summary="Take a worker out of service", responses=documented(NotFound))
def cordon_worker(name: WorkerName, store: SystemStoreDep, caller: CallerDep, by: ActorDep) -> WorkerStatus:
    """It finishes its running shard and takes no other, also after a restart, until it is uncordoned."""
    return worker_view(store.cordons.set(name, drain=False, by_whom=_who(caller), by=by))


@router.post("/{name}/drain", summary="Take a worker out of service at once", responses=documented(NotFound))
def drain_worker(name: WorkerName, store: SystemStoreDep, caller: CallerDep, by: ActorDep) -> WorkerStatus:
    """As a cordon; its running shard goes back to the queue too, within seconds and uncounted."""
    return worker_view(store.cordons.set(name, drain=True, by_whom=_who(caller), by=by))


@router.post("/{name}/uncordon", summary="Put a worker back into service", responses=documented(NotFound))
def uncordon_worker(name: WorkerName, store: SystemStoreDep, by: ActorDep) -> WorkerStatus:
    """Lifts a cordon or a drain. A worker that failed its self-test goes on testing itself."""
    return worker_view(store.cordons.lift(name, by=by))


@router.get("/identities", summary="List the identities that are ruled on")
def list_identities(store: SystemStoreDep) -> Page[IdentityStatus]:
    """What the service declares, and what administrators have allowed or withdrawn."""
    return Page(items=[_identity_view(one) for one in store.identities.all()])


@router.post("/identities/{digest}/allow", summary="Let workers of an identity take work")
def allow_identity(digest: Digest, store: SystemStoreDep, caller: CallerDep, by: ActorDep) -> IdentityStatus:
    """Lets workers of this identity, not the service's own, plan and measure jobs; also before they start."""
    return _identity_view(store.identities.rule(digest, ALLOWED, _who(caller), by))


@router.post("/identities/{digest}/withdraw", summary="Give workers of an identity no more work")
def withdraw_identity(
    digest: Digest, store: SystemStoreDep, caller: CallerDep, by: ActorDep
) -> IdentityStatus:
    """Its workers finish their shards and take no others, even if it is declared. Jobs they planned wait."""
    return _identity_view(store.identities.rule(digest, WITHDRAWN, _who(caller), by))


@fleets.get("", summary="List the fleets")
def list_fleets(store: SystemStoreDep, settings: SettingsDep) -> Page[FleetStatus]:
    """Fleets by name, whose controllers reported within a day."""
    return Page(items=[_fleet_view(one) for one in store.workers.fleets.all(settings.limits)])


@fleets.put(
    "/{name}",
    summary="Report a fleet",
    responses=documented(MalformedJson, UnsupportedMediaType),
    openapi_extra=json_body(FleetReport),
)
def report_fleet(name: FleetName, body: BodyDep, store: SystemStoreDep, settings: SettingsDep) -> FleetStatus:
    """What its controller does every half minute; the answer says how much work there is for the fleet."""
    told = validated(FleetReport, body)
    fleet = Fleet(name=name, **told.model_dump(exclude={"phase"}))
    return _fleet_view(store.workers.fleets.report(fleet, told.phase, settings.limits))


def _fleet_view(row: Fleet) -> FleetStatus:
    same = FleetStatus.model_fields.keys() - {"last_report", "refused"}
    values = {field: getattr(row, field) for field in same}
    return FleetStatus(**values, refused=row.standing, last_report=iso(row.seen_at))


def _identity_view(row: Ruling) -> IdentityStatus:
    return IdentityStatus(
        identity=row.name, verdict=row.verdict, by=row.by_whom, since=iso(row.since), workers=row.workers
    )


def _who(caller: Caller) -> str:
    return "an operator" if caller.key is None else f"{caller.key.name} (key {caller.key.id})"


def worker_view(row: ListedWorker) -> WorkerStatus:
    """A worker as administrators see it."""
    state, reason = _state(row)
    tested = row.gauges.get("self_test")
    cordon = row.cordon
    code = row.gauges.get("code")
    return WorkerStatus(
        name=row.name,
        id=row.worker,
        host=row.host,
        pid=row.pid,
        state=state,
        reason=reason,
        device_classes=list(row.device_classes),
        devices=row.devices,
        last_beat=iso_or_none(row.seen_at),
        cordon=None if cordon is None else _cordon_view(cordon),
        unfit=row.gauges.get("unfit", {}),
        shard=row.running and row.running[0],
        job=row.running and row.running[1],
        self_test=_devices(row.gauges),
        torch=tested and tested["torch"],
        cuda=tested and tested["cuda"],
        source_sha256=(code and code.get("source_sha256")) or (tested and tested["source_sha256"]),
        identity=row.identity or None,
        version=code and code["version"],
        commit=code and code.get("commit"),
        catalog=row.gauges.get("catalog"),
        folders=row.gauges.get("folders", []),
        data=row.gauges.get("data", {}),
        weights={name: one["sha256"] for name, one in row.gauges.get("weights", {}).items()},
        staged=row.gauges.get("staged", {}),
        lacks=sorted({*row.gauges.get("lacks", {}).values()}),
        proposal=row.gauges.get("proposal") or None,
    )


def _cordon_view(cordon: Cordon) -> WorkerCordon:
    return WorkerCordon(by=cordon.by_whom, since=iso(cordon.since), drain=cordon.drain)


def _state(row: ListedWorker) -> tuple[WorkerState, str | None]:
    cordoned = None if row.cordon is None else f"cordoned by {row.cordon.by_whom}"
    if not row.online:
        return "offline", cordoned
    if cordoned is not None:
        return "cordoned", cordoned
    if row.standing:
        return "unknown", _unknown(row)
    if row.devices > 0:
        return "online", None
    contained = row.gauges.get("containment")
    if contained is not None and (parts := refused_parts(contained["mode"], contained["missing"])):
        return "unfit", f"its evaluators cannot be contained; missing: {', '.join(parts)}"
    return "unfit", row.gauges.get("cordoned", "it has not passed its self-test yet")


def _unknown(row: ListedWorker) -> str:
    code = row.gauges.get("code")
    release = release_text(code) if code else "an earlier version, which takes work all the same: stop it"
    mine = f"identity {row.identity or 'none'} ({release})"
    allow = f"; assay workers allow {row.identity}" if row.identity else ""
    if row.standing == "withdrawn":
        return f"an administrator has withdrawn its {mine}{allow}"
    return f"its {mine} is not the service's own release's{allow}"


def _devices(gauges: Gauges) -> list[WorkerDevice]:
    """The devices of its self-test; none where a worker of another version tells them otherwise."""
    tested = gauges.get("self_test")
    try:
        return [] if tested is None else [WorkerDevice.model_validate(one) for one in tested["devices"]]
    except ValidationError:
        return []

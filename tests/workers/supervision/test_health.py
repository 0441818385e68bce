"""Workers whose devices fail: the faults are planted, in a fake evaluator, since no test has a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.store.store import Store
from assay.service.submission.requirements import PlanningDevice
from assay.workers.devices import device_classes
from assay.workers.settings import WorkerSettings
from assay.workers.supervision import health as health_module
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.evaluator_process import UnfitWorker
from assay.workers.supervision.health import Health
from assay.workers.supervision.supervisor import Supervisor
from tests.support.workers import ended, losses_and_failures, settings, submit, supervising, wait_for


def acting(state: Path, words: str, **changes: Any) -> WorkerSettings:
    """Settings of a worker whose evaluator acts on these words."""
    plain = settings(state).evaluator_command
    return settings(state, evaluator_command=f"env 'FAKE_EVALUATOR={words}' {plain}", **changes)


@contextmanager
def worker(
    store: Store, chosen: WorkerSettings, classes: Sequence[str] = ("cpu",), number: int = 0
) -> Iterator[Supervisor]:
    supervisor = Supervisor(DirectLedger(store, chosen), chosen, device_classes=classes, number=number)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        supervisor.join(120)
        assert not supervisor.is_alive()


def gauges(store: Store) -> list[Any]:
    return [row.gauges for row in store.online_workers()]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses between self-tests."""
    monkeypatch.setattr(health_module, "MIN_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(health_module, "MAX_PAUSE_SECONDS", 0.2)


def test_a_box_with_a_broken_driver_serves_the_cpu_and_says_why(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/dev/nvidia0` is there, and torch has no CUDA."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nvidia0").touch()
    classes = device_classes(tmp_path)
    assert classes == ("cuda", "cpu")
    waiting = submit(store, "", device="cuda")
    with worker(store, acting(tmp_path, "broken=cuda"), classes):
        done = submit(store, "", device="cpu")
        assert ended(store, done).state == "succeeded"
        assert (store.workers.online("cuda"), store.workers.online("cpu")) == (0, 1)
        (found,) = gauges(store)
        assert found["unfit"] == {"cuda": "cuda:0: a matmul of fixed integers gives the checksum 0"}
        assert "cordoned" not in found
        assert [one["device"] for one in found["self_test"]["devices"]] == ["cuda:0", "cpu"]
    assert store.jobs.get(waiting).state == "queued"
    assert {shard.fence for shard in store.shards.of(waiting)} == {0}, "it was never claimed"


def test_a_gpu_is_tested_before_the_worker_registers(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes: list[tuple[str, ...]] = []
    beat = store.workers.beat
    monkeypatch.setattr(store.workers, "beat", lambda *a: (classes.append((*a[2], str(a[5]))), beat(*a))[1])
    with worker(store, acting(tmp_path, ""), ("cuda", "cpu")):
        wait_for(lambda: store.workers.online("cuda"))
    assert set(classes) == {("cuda", "cpu", "1")}, "no heartbeat came before the test passed"


def test_an_idle_worker_without_a_gpu_starts_no_evaluator(store: Store, tmp_path: Path) -> None:
    with worker(store, acting(tmp_path, "broken=cpu")) as supervisor:
        wait_for(lambda: store.workers.online("cpu"))
        supervisor.ring()
        assert supervisor.evaluator_pid is None


@pytest.mark.usefixtures("quick")
def test_a_worker_with_nothing_left_is_cordoned_and_tries_again(store: Store, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    job_id = submit(store, "shards=2")
    with worker(store, acting(tmp_path, f"broken=cpu mended={mended}")):
        wait_for(lambda: "gave a shard back: cpu: a matmul" in store.jobs.get(job_id).message)
        wait_for(lambda: any("cordoned" in found for found in gauges(store)))
        assert store.workers.online("auto") == 0
        assert store.workers.out_of_service() == (0, 1)
        mended.touch()
        assert ended(store, job_id).state == "succeeded"
        wait_for(lambda: store.workers.online("cpu") == 1)
    assert losses_and_failures(store, job_id) == (0, 0)


@pytest.mark.costly
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dead", "the evaluator process died in its self-test: exit code 4. no driver"),
        ("mute", "no answer within 0.5 s"),
    ],
)
def test_a_driver_that_kills_or_hangs_costs_no_job(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    if words == "mute":
        monkeypatch.setattr(health_module, "SELF_TEST_SECONDS", 0.5)
    job_id = submit(store, "")
    with worker(store, acting(tmp_path, words, cancel_grace_seconds=0.1), ("cuda", "cpu")):
        wait_for(lambda: any(said in found.get("cordoned", "") for found in gauges(store)))
    monkeypatch.undo()
    assert {shard.fence for shard in store.shards.of(job_id)} == {0}
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"


@pytest.mark.costly
def test_after_a_fault_the_device_is_tested_and_the_shard_runs_again(
    either_store: Store, tmp_path: Path
) -> None:
    """The devices pass: what the job says of them counts against the job."""
    job_id = submit(either_store, "shards=2 evaluate:fault=once")
    with worker(either_store, settings(tmp_path)) as supervisor:
        tests: list[None] = []
        health = supervisor._evaluator.health
        test = health.test
        health.test = lambda *a: (tests.append(None), test(*a))[1]  # type: ignore[method-assign]
        assert ended(either_store, job_id).state == "succeeded"
        assert len(tests) >= 2
    assert losses_and_failures(either_store, job_id) == (0, 2)
    assert {shard.device_faults for shard in either_store.shards.of(job_id)} == {0}


def test_a_job_that_says_twice_that_good_devices_fail_fails_itself(
    either_store: Store, tmp_path: Path
) -> None:
    job_id = submit(either_store, "shards=1 evaluate:fault=always")
    with worker(either_store, settings(tmp_path)):
        job = ended(either_store, job_id)
        wait_for(lambda: either_store.workers.online("cpu") == 1)
        other = submit(either_store, "")
        assert ended(either_store, other).state == "succeeded"
    assert either_store.workers.unfit() == []
    assert job.error is not None
    assert job.error["type"] == "device_fault"
    assert "the job says that its worker is not fit, ECC error" in job.error["message"]
    assert "its devices have passed another self-test (twice in succession" in job.error["message"]
    assert losses_and_failures(either_store, job_id) == (0, 2)


def test_a_device_that_fails_its_test_after_a_fault_is_the_workers(store: Store, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    job_id = submit(store, f"shards=1 evaluate:until={broken} evaluate:fault=always")
    with worker(store, acting(tmp_path, f"broken=cpu breaking={broken}"), number=1):
        wait_for(lambda: store.jobs.get(job_id).state == "running")
        broken.touch()
        wait_for(lambda: "gave a shard back: cpu: a matmul" in store.jobs.get(job_id).message)
        wait_for(lambda: store.workers.online("cpu") == 0)
    assert losses_and_failures(store, job_id) == (0, 0)
    assert sum(shard.device_faults for shard in store.shards.of(job_id)) == 1
    assert store.jobs.get(job_id).state == "running"


def test_a_job_whose_fault_no_test_finds_is_left_to_other_workers(store: Store, tmp_path: Path) -> None:
    store.workers.beat("other", "box", ["cpu"], 1, None, 1, "box:0")
    job_id = submit(store, "shards=1")
    with worker(store, acting(tmp_path, "evaluate:unfit=device_fault")) as supervisor:
        wait_for(lambda: job_id in supervisor._evaluator.left)
        wait_for(lambda: not store.shards.running())
        wait_for(lambda: store.workers.online("cpu") == 2)
    with worker(store, settings(tmp_path), number=2):
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (0, 1)


def test_a_cordoned_worker_finishes_its_shard_and_takes_no_other(either_store: Store, tmp_path: Path) -> None:
    store, go_on = either_store, tmp_path / "go_on"
    job_id = submit(store, f"shards=2 evaluate:until={go_on}")
    with worker(store, settings(tmp_path)) as supervisor:
        wait_for(lambda: store.jobs.get(job_id).state == "running" and store.shards.running())
        store.cordons.set(supervisor.known_as, drain=False, by_whom="ops")
        go_on.touch()
        wait_for(lambda: not store.shards.running())
        assert [shard.state for shard in store.shards.of(job_id)].count("done") == 2, "the plan and one more"
        wait_for(lambda: supervisor.evaluator_pid is None)
        assert store.workers.online("cpu") == 0
        store.cordons.lift(supervisor.known_as)
        assert ended(store, job_id).state == "succeeded"
    assert {shard.fence for shard in store.shards.of(job_id)} == {1}


def test_a_drained_worker_gives_its_shard_back_at_once(either_store: Store, tmp_path: Path) -> None:
    store = either_store
    job_id = submit(store, "shards=1 evaluate:hang")
    with worker(store, settings(tmp_path)) as supervisor:
        wait_for(lambda: store.jobs.get(job_id).state == "running" and store.shards.running())
        store.cordons.set(supervisor.known_as, drain=True, by_whom="ops")
        wait_for(lambda: not store.shards.running())
        wait_for(lambda: supervisor.evaluator_pid is None)
        assert store.jobs.get(job_id).state == "running"
    assert {shard.state for shard in store.shards.of(job_id)} == {"done", "queued"}
    assert losses_and_failures(store, job_id) == (0, 0)


def test_pauses_grow_and_begin_anew_after_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(health_module.time, "monotonic", lambda: clock[0])
    found = Health(("cuda", "cpu"), 1)
    assert found.due
    assert found.classes == ()
    pauses = []
    for _ in range(8):
        found.failed("broken")
        begun = clock[0]
        while not found.due:
            clock[0] += 1
        pauses.append(clock[0] - begun)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    found._settle({})
    assert (found.classes, found.due, found.reason) == (("cuda", "cpu"), False, "")
    found.failed("broken")
    clock[0] += 5
    assert found.due


class Answers:
    """A process that answers every request with one report."""

    last_output, has_served = "", False

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    def send(self, request: Any) -> None:
        assert request["kind"] == "self_test"

    def receive(self, timeout: float) -> Any:
        return self.report


VERSIONS = {"torch": "2", "cuda": "13", "nccl": "2", "deterministic": True, "source_sha256": "s"}


def device(name: str, fault: str | None = None) -> dict[str, Any]:
    return {"device": name, "name": "X", "fault": fault, "total": 1, "free": 1, "capability": None}


@pytest.mark.parametrize(
    ("devices", "count", "classes"),
    [
        ([device("cpu"), device("cuda:0"), device("cuda:1")], 1, ("cuda", "cpu")),
        ([device("cpu"), device("cuda:0"), device("cuda:1", "lost")], 1, ("cuda", "cpu")),
        ([device("cpu"), device("cuda:0"), device("cuda:1", "lost")], 2, ("cpu",)),
        ([device("cpu"), device("cuda", "no driver")], 1, ("cpu",)),
        ([device("cpu")], 1, ("cpu",)),
        ([device("cpu", "wrong"), device("cuda:0")], 1, ()),
    ],
)
def test_the_devices_that_a_worker_uses_decide(
    devices: list[dict[str, Any]], count: int, classes: tuple[str, ...]
) -> None:
    found = Health(("cuda", "cpu"), count)
    process: Any = Answers({"type": "self_tested", **VERSIONS, "devices": devices})
    if classes:
        found.test(process, lambda: False)
    else:
        with pytest.raises(UnfitWorker, match=r"^cpu: wrong$"):
            found.test(process, lambda: False)
    assert found.classes == classes


@pytest.mark.parametrize(
    ("gpus", "count", "memory", "capability"),
    [
        ([(80, "9.0"), (16, "7.5")], 2, 16, "7.5"),
        ([(16, "7.5"), (80, "9.0")], 2, 16, "7.5"),
        ([(80, "9.0"), (16, "7.5")], 1, 80, "9.0"),
        ([(80, "9.0"), (96, "10.0")], 2, 80, "9.0"),
        ([(None, None), (96, "10.0")], 2, 96, "10.0"),
    ],
)
def test_shards_are_planned_for_the_least_gpu_that_a_worker_uses(
    gpus: list[tuple[int | None, str | None]], count: int, memory: int, capability: str
) -> None:
    devices = [
        device(f"cuda:{number}") | {"total": total, "capability": able}
        for number, (total, able) in enumerate(gpus)
    ]
    found = Health(("cuda", "cpu"), count)
    assert found.gpu == PlanningDevice(None, None)
    report: Any = Answers({"type": "self_tested", **VERSIONS, "devices": [device("cpu"), *devices]})
    found.test(report, lambda: False)
    assert found.gpu == PlanningDevice(memory, capability)


def test_auto_is_the_cpu_where_the_gpu_is_broken() -> None:
    found = Health(("cuda", "cpu"), 1)
    spec: Any = {"name": "x", "execution": {"device": "auto", "dtype": "float32"}}
    found._settle({})
    assert found.settled(spec) == spec
    found._settle({"cuda": "lost"})
    assert found.settled(spec) == {"name": "x", "execution": {"device": "cpu", "dtype": "float32"}}
    assert found.settled({**spec, "execution": {"device": "cuda"}})["execution"]["device"] == "cuda"


def test_an_evaluator_cannot_give_its_shard_back_for_ever(store: Store, tmp_path: Path) -> None:
    """`unfit` is the supervisor's own word: from an evaluator it is a failure like others."""
    job_id = submit(store, "shards=1 evaluate:unfit=unfit")
    with worker(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.error is not None
    assert job.error["type"] == "unfit"
    assert losses_and_failures(store, job_id) == (0, 3)


def test_an_error_of_the_test_itself_is_a_fault() -> None:
    found = Health(("cpu",), 1)
    process: Any = Answers({"type": "error", "error_type": "evaluator_raised", "message": "x", "retry": True})
    with pytest.raises(UnfitWorker, match="cpu: the self-test raised evaluator_raised: x"):
        found.test(process, lambda: False)

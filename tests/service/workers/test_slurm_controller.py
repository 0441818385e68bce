"""The controller over a fake Slurm and a real service."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.service.client import AssayClient
from assay.service.store.store import Store
from assay.service.workers import slurm_controller
from assay.service.workers.slurm import SlurmFleet
from assay.service.workers.slurm_controller import SlurmController, wanted
from assay.service.workers.slurm_queue import SlurmUnavailable
from tests.support.fake_slurm import FakeSlurm
from tests.support.jobs import add, claim, evaluate_spec, finish_all, planned

FLEET = SlurmFleet(partition="gpu", max=10, device="cpu", every=0.01)


@pytest.mark.parametrize(
    ("most", "queued", "busy", "workers"),
    [
        (64, 0, 0, 0),
        (64, 3, 0, 3),
        (64, 100, 0, 4),  # the first, before any has found work
        (64, 100, 4, 12),
        (64, 100, 12, 28),
        (64, 100, 40, 64),
        (64, 2, 40, 42),
        (64, 0, 40, 40),
    ],
)
def test_there_are_as_many_workers_as_work(most: int, queued: int, busy: int, workers: int) -> None:
    assert wanted(most, queued, busy) == workers


@pytest.fixture
def controller(fake_slurm: FakeSlurm, client: AssayClient) -> SlurmController:
    return SlurmController(FLEET, client, FLEET.script({}))


def test_it_scales_up_reports_and_scales_to_zero(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    assert controller.round() == "0 shards queued, 0 running; 0 workers, 0 pending"
    job_id = planned(app_store, 6)
    assert controller.round() == (
        "6 shards queued, 0 running; 0 workers, 0 pending; asked for 4 more (array 101)"
    )
    assert controller.round() == "6 shards queued, 0 running; 0 workers, 4 pending"
    (fleet,) = client.fleets()
    assert (fleet.engine, fleet.device, fleet.most, fleet.running, fleet.pending) == (
        "Slurm",
        "cpu",
        10,
        0,
        4,
    )
    fake_slurm.start(2)
    for number in range(2):
        name = f"node{number}:assay.101{number}"
        app_store.workers.beat(f"w{number}", "node", ["cpu"], number + 1, {}, 1, name)
        claim(app_store, f"w{number}")
    assert controller.round() == (
        "4 shards queued, 2 running; 2 workers, 2 pending (Priority); asked for 2 more (array 102)"
    )
    assert client.job(job_id).workers_online == 2
    again = SlurmController(FLEET, client, FLEET.script({}))  # as after a restart
    assert again.round() == "4 shards queued, 2 running; 2 workers, 4 pending (Priority)"
    app_store.shards.expire(dead_owners=["w0", "w1"], leases=False)
    finish_all(app_store, job_id)
    said = again.round()
    assert said == "0 shards queued, 0 running; 2 workers, 4 pending (Priority); gave 4 pending up"
    assert fake_slurm.states() == ["RUNNING", "RUNNING"]  # they end by themselves
    fake_slurm.write([])
    assert again.round() == "0 shards queued, 0 running; 0 workers, 0 pending"


def test_workers_that_slurm_holds_are_replaced(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    planned(app_store, 3)
    held = [[f"7_{n}", "REQUEUE_HOLD", "JobHoldMaxRequeue", FLEET.name] for n in (1, 2)]
    fake_slurm.write([*held, ["7_3", "RUNNING", "None", FLEET.name]])
    assert controller.round() == (
        "3 shards queued, 0 running; 1 workers, 0 pending; gave 2 up that Slurm holds"
        "; asked for 2 more (array 8)"
    )
    (fleet,) = client.fleets()
    assert (fleet.running, fleet.pending) == (1, 2)
    assert fake_slurm.states() == ["RUNNING", "PENDING", "PENDING"]


def test_a_requeued_worker_is_replaced_while_slurm_delays_it(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store
) -> None:
    planned(app_store, 2)
    delayed = ["7_2", "PENDING", "BeginTime", FLEET.name]
    fake_slurm.write([["7_1", "RUNNING", "None", FLEET.name], delayed])
    said = "2 shards queued, 0 running; 1 workers, 1 pending (BeginTime); asked for 1 more (array 8)"
    assert controller.round() == said
    assert controller.round() == "2 shards queued, 0 running; 1 workers, 2 pending (BeginTime)"
    fake_slurm.write(
        [[*row[:1], "RUNNING", "None", *row[3:]] if row[0] == "8_1" else row for row in fake_slurm.rows()]
    )
    said = "2 shards queued, 0 running; 2 workers, 1 pending (BeginTime); gave 1 up that were requeued"
    assert controller.round() == said


def test_a_fleet_at_its_limit_waits_for_a_delayed_worker(
    fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    planned(app_store, 6)
    full = FLEET.model_copy(update={"max": 2})
    rows = [["7_1", "RUNNING", "None", FLEET.name], ["7_2", "PENDING", "BeginTime", FLEET.name]]
    fake_slurm.write(rows)
    said = SlurmController(full, client, full.script({})).round()
    assert said == "6 shards queued, 0 running; 1 workers, 1 pending (BeginTime)"


def test_a_job_says_what_it_waits_for(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    job_id = planned(app_store, 2)
    assert client.job(job_id).message == "no worker is listening for this job"
    controller.round()
    assert client.job(job_id).message == "waiting for Slurm"
    fake_slurm.start(0)
    controller.round()
    assert client.job(job_id).message == "waiting for Slurm: Priority"


def test_a_slurm_that_is_away_is_news_once_and_asked_again(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store
) -> None:
    broken = fake_slurm.folder / "broken"
    broken.touch()
    stopping, told = threading.Event(), []

    def tell(said: str) -> None:
        told.append(said)
        if len(told) == 1:
            broken.unlink()
        else:
            stopping.set()

    controller.run(stopping, tell)
    assert told == [
        "not scaled: squeue: slurm_load_jobs error: Unable to contact slurm controller",
        "0 shards queued, 0 running; 0 workers, 0 pending",
    ]


def test_pending_jobs_of_other_options_are_asked_for_again(
    fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    planned(app_store, 2)
    long = FLEET.model_copy(update={"max_seconds": 90_000})
    SlurmController(long, client, long.script({})).round()
    fake_slurm.write([[*row[:2], "PartitionTimeLimit", *row[3:]] for row in fake_slurm.rows()])
    said = SlurmController(long, client, long.script({})).round()
    assert said == (
        "2 shards queued, 0 running; 0 workers, 2 pending"
        " (PartitionTimeLimit: ask for less time, with a smaller --max-seconds)"
    )
    again = SlurmController(FLEET, client, FLEET.script({}))
    assert again.round() == (
        "2 shards queued, 0 running; 0 workers, 0 pending; gave 2 pending up that were asked for with other"
        " options; asked for 2 more (array 101)"
    )
    assert again.round() == "2 shards queued, 0 running; 0 workers, 2 pending"


def test_shards_of_other_code_are_asked_for_once(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    """As after an upgrade: workers of the new code take none of the old code's shards."""
    planned(app_store, 6, planned_by="0ld")
    assert controller.round().endswith("asked for 4 more (array 101)")
    fake_slurm.start(4)
    for number in range(1, 5):
        app_store.workers.beat(f"w{number}", "node", ["cpu"], 1, {}, 1, f"node:assay.101_{number}", "new")
    idle = "0 shards queued, 0 running, 6 withheld for other code (`assay replan`), or by a tenant's limit"
    assert controller.round() == f"{idle}; 4 workers, 0 pending"
    fake_slurm.write([])  # they end
    for number in range(1, 5):
        app_store.workers.gone(f"w{number}")
    assert controller.round() == f"{idle}; 0 workers, 0 pending"
    add(app_store, evaluate_spec())
    assert controller.round().startswith("1 shards queued, 0 running, 6 withheld"), "a plan is for any code"
    restarted = SlurmController(FLEET, client, FLEET.script({}))
    assert restarted.round().startswith("7 shards queued"), "the nodes may have been exchanged"


@pytest.fixture
def doomed(
    fake_slurm: FakeSlurm, client: AssayClient, app_store: Store, tmp_path: Path
) -> tuple[SlurmController, str]:
    """A controller of workers that end at once, and a job for them."""
    fleet = FLEET.model_copy(update={"every": 30.0, "logs": str(tmp_path)})
    return SlurmController(fleet, client, fleet.script({})), planned(app_store, 6)


def test_workers_that_end_unheard_are_asked_for_ever_later_and_told_to_all(
    doomed: tuple[SlurmController, str],
    fake_slurm: FakeSlurm,
    app_store: Store,
    client: AssayClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, job_id = doomed
    clock = [0.0]
    monkeypatch.setattr(slurm_controller, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert controller.round().endswith("asked for 4 more (array 101)")
    (tmp_path / "assay-101_1.log").write_text("starting\nexec: /nope: not found\n\n")
    (fake_slurm.folder / "ended").write_text("".join(f"101_{n}|FAILED|n1\n" for n in range(1, 5)))
    fake_slurm.write([])
    why = (
        "4 ended before the service heard of any, another is tried after 60 s:"
        f" log {tmp_path}/assay-101_1.log on n1: exec: /nope: not found"
    )
    assert controller.round() == f"6 shards queued, 0 running; 0 workers, 0 pending ({why})"
    assert [fleet.reason for fleet in client.fleets()] == [why[:200]]
    told = "waiting for Slurm: 4 ended before the service heard of any, another is tried after 60 s"
    assert client.job(job_id).message == told, "an operator's log is no tenant's"
    waits = []
    for _ in range(4):
        begun = clock[0]
        while "asked for 1 more" not in controller.round():
            clock[0] += 10
        waits.append(clock[0] - begun)
        fake_slurm.write([])
        controller.round()
    assert waits == [60, 120, 240, 300]
    clock[0] += 300
    assert "asked for 1 more" in controller.round()
    fake_slurm.start(1)
    app_store.workers.beat("w", "n1", ["cpu"], 1, {}, 1, "n1:assay.101_1")
    said = controller.round()
    assert said == "6 shards queued, 0 running; 1 workers, 0 pending; asked for 3 more (array 102)"
    assert [fleet.reason for fleet in client.fleets()] == [""]
    fake_slurm.write([])
    app_store.workers.gone("w")
    (fake_slurm.folder / "ended").write_text("".join(f"102_{n}|CANCELLED|\n" for n in range(1, 4)))
    assert controller.round().endswith("0 pending; asked for 4 more (array 101)"), "a worker that was heard"


def test_a_bad_node_beside_good_nodes_is_avoided_for_an_hour(
    doomed: tuple[SlurmController, str],
    fake_slurm: FakeSlurm,
    app_store: Store,
    client: AssayClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, _ = doomed
    clock = [0.0]
    monkeypatch.setattr(slurm_controller, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    controller.round()
    fake_slurm.start(4)
    app_store.workers.beat("w1", "n1", ["cpu"], 1, {}, 1, "n1:assay.101_1")
    app_store.workers.beat("w2", "n2", ["cpu"], 1, {}, 1, "cluster:n2.local:assay.101_2")
    (fake_slurm.folder / "ended").write_text("".join(f"101_{n}|FAILED|n3\n" for n in (3, 4)))
    fake_slurm.write(fake_slurm.rows()[:2])
    said = controller.round()
    assert said == "6 shards queued, 0 running; 2 workers, 0 pending; asked for 2 more (array 102)"
    assert fake_slurm.excluded() == ""
    ended = "102_1|FAILED|n3\n102_2|NODE_FAIL|n2\n"  # the second after a worker that was heard there
    (fake_slurm.folder / "ended").write_text(ended)
    fake_slurm.write(fake_slurm.rows()[:2])
    avoided = "no worker is asked for on n3: 3 or more ended there unheard"
    found = "6 shards queued, 0 running; 2 workers, 0 pending"
    assert controller.round() == f"{found} ({avoided}); asked for 2 more (array 102)"
    assert fake_slurm.excluded() == "n3"
    assert [fleet.reason for fleet in client.fleets()] == [avoided]
    fake_slurm.start(0)
    assert controller.round().endswith(f"2 pending (Priority; {avoided})")
    assert [fleet.reason for fleet in client.fleets()] == ["Priority"]
    clock[0] = 3601
    fake_slurm.write(fake_slurm.rows()[:2])
    assert controller.round() == f"{found}; asked for 2 more (array 102)"
    assert fake_slurm.excluded() == ""


def test_the_log_of_another_user_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine").write_bytes(b"x" * 9000 + b"\n" + b"y" * 99 + b"last \x1b[1m\xff\n")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    told = [slurm_controller._last_line(str(tmp_path / name)) for name in ("pipe", "link", "none", "mine")]
    assert told == ["", "", "", "y" * 71 + "last [1m\ufffd"]


def test_a_refused_submission_is_told_to_all(
    controller: SlurmController, fake_slurm: FakeSlurm, app_store: Store, client: AssayClient
) -> None:
    job_id = planned(app_store, 2)
    refusal = fake_slurm.folder / "refusal"
    refusal.write_text("sbatch: error: Invalid feature specification")
    with pytest.raises(SlurmUnavailable, match="--constraint with features that"):
        controller.round()
    (fleet,) = client.fleets()
    assert fleet.reason.startswith("sbatch: sbatch: error: Invalid feature specification: --constraint with")
    assert client.job(job_id).message == f"waiting for Slurm: {fleet.reason}"
    refusal.unlink()
    assert controller.round().endswith("asked for 2 more (array 101)")
    assert [fleet.reason for fleet in client.fleets()] == [""]


def test_a_controller_that_ends_says_so(
    controller: SlurmController, fake_slurm: FakeSlurm, client: AssayClient
) -> None:
    stopping = threading.Event()
    controller.run(stopping, lambda said: stopping.set())
    assert [fleet.online for fleet in client.fleets()] == [False]

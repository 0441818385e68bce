"""What a worker has: hashes of its data by the state of their files, and requirements that it meets."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.submission.requirements import PlanningDevice, digest_of
from assay.workers.settings import WorkerSettings
from assay.workers.supervision import inventory
from assay.workers.supervision.inventory import Hashed, Inventory
from tests.support.pulled import pull_tensors

NO_GPU = PlanningDevice()
GIB = 2**30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one/a.bin", "one/below/b.bin", "two/c.bin"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"content of " + name.encode())
    return tmp_path / "data"


@pytest.fixture
def settings(tmp_path: Path, root: Path) -> WorkerSettings:
    return WorkerSettings(state=tmp_path / "state", data_root=root)


def hashed(stock: Inventory, label: str, sha256: str, *folders: str) -> None:
    fingerprint = stock.fingerprint(folders)
    assert fingerprint is not None
    stock.keep(label, Hashed(folders, fingerprint, sha256))


def lanes(*requirements: Requirements, identity: str = "planner") -> list[OpenLane]:
    return [OpenLane(Lane("cpu", identity, digest_of(stated)), stated) for stated in requirements]


def reasons(stock: Inventory, *requirements: Requirements, gpu: PlanningDevice = NO_GPU) -> list[str | None]:
    stock.judge(lanes(*requirements), gpu)
    return [stock.lacks.get(digest_of(stated)) for stated in requirements]


def test_a_hash_holds_until_a_file_changes(settings: WorkerSettings, root: Path) -> None:
    stock = Inventory(settings)
    assert stock.known("set", ["one"], walk=True) is None
    hashed(stock, "set", "a" * 64, "one")
    assert stock.known("set", ["one"], walk=True) == "a" * 64
    (root / "two" / "c.bin").write_bytes(b"of no concern")
    assert stock.known("set", ["one"], walk=True) == "a" * 64
    (root / "one" / "below" / "b.bin").write_bytes(b"changed")
    assert stock.known("set", ["one"], walk=True) is None


@pytest.mark.parametrize("change", ["time", "name", "new", "gone"])
def test_every_change_of_a_file_counts(settings: WorkerSettings, root: Path, change: str) -> None:
    stock = Inventory(settings)
    hashed(stock, "set", "a" * 64, "one")
    file = root / "one" / "a.bin"
    if change == "time":
        os.utime(file, ns=(1, 1))
    if change == "name":
        file.rename(root / "one" / "b.bin")
    if change == "new":
        (root / "one" / "z.bin").touch()
    if change == "gone":
        file.unlink()
    assert stock.known("set", ["one"], walk=True) is None


def test_folders_are_not_walked_all_the_time(settings: WorkerSettings, root: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    walked: list[object] = []
    real = inventory._walk
    monkeypatch.setattr(inventory, "_walk", lambda *given: walked.append(given) or real(*given))
    monkeypatch.setattr(inventory, "REST", 1e9)
    stock = Inventory(settings)
    hashed(stock, "set", "a" * 64, "one")
    for _ in range(3):
        assert stock.known("set", ["one"], walk=False) == "a" * 64
    assert len(walked) == 1
    assert stock.known("set", ["one"], walk=True) == "a" * 64
    assert len(walked) == 2


def test_other_workers_of_the_machine_need_not_hash_again(settings: WorkerSettings) -> None:
    first, second = Inventory(settings), Inventory(settings)
    hashed(first, "set", "a" * 64, "one")
    assert second.known("set", ["one"], walk=True) == "a" * 64
    hashed(second, "other", "b" * 64, "two")
    assert first.known("other", ["two"], walk=True) == "b" * 64
    assert Inventory(settings).known("set", ["one"], walk=True) == "a" * 64


def test_hashes_are_of_one_data_root(settings: WorkerSettings, tmp_path: Path) -> None:
    hashed(Inventory(settings), "set", "a" * 64, "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Inventory(settings.model_copy(update={"data_root": elsewhere}))
    assert other.known("set", ["one"], walk=True) is None


def test_a_damaged_file_is_nothing(settings: WorkerSettings) -> None:
    hashed(Inventory(settings), "set", "a" * 64, "one")
    for file in (settings.state / inventory.FOLDER).glob("*.json"):
        file.write_text('{"root": ')
    stock = Inventory(settings)
    assert stock.known("set", ["one"], walk=True) is None
    hashed(stock, "set", "b" * 64, "one")
    assert Inventory(settings).known("set", ["one"], walk=True) == "b" * 64


def test_without_room_for_the_file_the_worker_knows_it_still(settings: WorkerSettings) -> None:
    settings.state.mkdir()
    (settings.state / inventory.FOLDER).write_text("a file where the folder should be")
    stock = Inventory(settings)
    hashed(stock, "set", "a" * 64, "one")
    assert stock.known("set", ["one"], walk=True) == "a" * 64
    with stock.hashing(lambda: False) as mine:
        assert mine


def test_what_is_missing_is_named(settings: WorkerSettings, root: Path) -> None:
    stock = Inventory(settings)
    assert reasons(stock, {"folders": ["one", "two"]}, {"folders": ["one", "three"]}, {"gpu": True}) == [
        None,
        f"it has no folder 'three' below its data root {root}",
        "it has no GPU",
    ]
    bare = Inventory(settings.model_copy(update={"data_root": None}))
    assert reasons(bare, {"folders": ["one"]}) == [
        "it has no data root (ASSAY_DATA_ROOT), 'one' is needed below it"
    ]


def test_a_gpu_is_judged_by_its_self_test(settings: WorkerSettings) -> None:
    stock, small = Inventory(settings), PlanningDevice(16 * GIB, "7.5")
    asked: list[Requirements] = [{"memory": 16 * GIB}, {"memory": 32 * GIB}, {"capability": "8.0"}]
    assert reasons(stock, *asked, gpu=small) == [
        None,
        f"its GPU has {16 * GIB:,} bytes of memory, {32 * GIB:,} are needed",
        "its GPU has the compute capability 7.5, 8.0 is needed",
    ]
    sharing = Inventory(settings.model_copy(update={"workers_per_gpu": 4}))
    assert reasons(sharing, {"memory": 32 * GIB}, gpu=PlanningDevice(20 * GIB, "9.0")) == [
        f"its part of a GPU (ASSAY_WORKERS_PER_GPU=4) has {20 * GIB:,} bytes of memory,"
        f" {32 * GIB:,} are needed"
    ]
    assert reasons(stock, *asked, gpu=PlanningDevice(80 * GIB, "9.0")) == [None] * 3
    assert reasons(stock, *asked) == [None] * 3, "what is not known is no reason"


def test_other_data_are_named_until_they_are_replaced(settings: WorkerSettings, root: Path) -> None:
    stock = Inventory(settings)
    wanted: Requirements = {"folders": ["one"], "data": {"set": "b" * 64}}
    assert reasons(stock, wanted) == [None], "not hashed yet: it may be the planned one"
    hashed(stock, "set", "a" * 64, "one")
    assert not stock.judge(lanes(wanted), NO_GPU)
    reason = f"the data set set has the content {'a' * 64} on this worker, {'b' * 64} in the plan"
    assert stock.lacks == {digest_of(wanted): reason}
    assert stock.other_data == [reason]
    assert stock.gauges["lacks"] == stock.lacks
    (root / "one" / "a.bin").write_bytes(b"the planned one")
    stock._walks.clear()  # as if they had rested
    assert stock.judge(lanes(wanted), NO_GPU), "there is something to look at again"
    assert (stock.lacks, stock.other_data) == ({}, [])


def test_only_a_shard_without_a_plan_is_taken_where_no_worker_meets_its_requirements(
    settings: WorkerSettings,
) -> None:
    stock = Inventory(settings)
    missing: Requirements = {"folders": ["three"]}
    first, planned = lanes(missing, identity="")[0], lanes(missing)[0]
    met = lanes({"folders": ["one"]})[0]
    opened = [first, planned, met]
    stock.judge(opened, NO_GPU)
    assert stock.lanes(lambda device, digest: False) == [met.lane]
    assert stock.lanes(lambda device, digest: True) == [first.lane, met.lane]


def test_workers_of_other_machines_have_time_for_their_heartbeats(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = Inventory(settings.model_copy(update={"mode": "distributed"}))
    opened = lanes({"folders": ["three"]}, identity="")
    stock.judge(opened, NO_GPU)
    at = [100.0]
    monkeypatch.setattr(inventory.time, "monotonic", lambda: at[0])
    assert stock.lanes(lambda device, digest: True) == []
    at[0] += inventory.BEATS_SECONDS - 1
    assert stock.lanes(lambda device, digest: True) == []
    assert stock.lanes(lambda device, digest: False) == [], "one has said that it has the folder"
    at[0] += 2
    assert stock.lanes(lambda device, digest: True) == [], "it begins anew"
    at[0] += inventory.BEATS_SECONDS
    assert stock.lanes(lambda device, digest: True) == [opened[0].lane]


def test_what_it_has_is_advertised(settings: WorkerSettings, root: Path) -> None:
    stock = Inventory(settings)
    (root / ".hidden").mkdir()
    (root / os.fsdecode(b"odd\xff")).mkdir()
    (root / "one" / os.fsdecode(b"odd\xff")).touch()
    hashed(stock, "set", "a" * 64, "one")
    found = stock.gauges
    assert found.pop("libraries").keys() == {"cleverhans", "pyautoattack", "transformers"}
    assert found == {"folders": ["one", "two"], "data": {"set": "a" * 64}, "weights": {}}


def test_links_in_a_circle_and_to_nothing_are_no_trap(settings: WorkerSettings, root: Path) -> None:
    (root / "one" / "circle").symlink_to(root / "one")
    (root / "one" / "nothing").symlink_to(root / "missing")
    assert Inventory(settings).fingerprint(["one"]) is not None
    assert Inventory(settings).fingerprint(["one", "missing"]) is None


def test_workers_of_a_machine_hash_one_after_the_other(settings: WorkerSettings) -> None:
    first, second = Inventory(settings), Inventory(settings)
    stop = threading.Event()
    with first.hashing(lambda: False) as mine:
        assert mine
        threading.Timer(0.2, stop.set).start()
        with second.hashing(stop.is_set) as theirs:
            assert not theirs, "interrupted while it waited"
    with second.hashing(lambda: False) as theirs:
        assert theirs


def test_libraries_in_the_planned_version_and_files_of_a_folder_or_a_package(
    settings: WorkerSettings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_version: Requirements = {"libraries": {"cleverhans": ""}}
    planned: Requirements = {"libraries": {"cleverhans": "4.0.0"}}
    photographs: Requirements = {"files": {"frost-photographs": "imagecorruptions"}}
    asked = (any_version, planned, photographs)
    monkeypatch.setattr(inventory, "version_of", lambda name: "3.1.0")
    monkeypatch.setattr(inventory, "has_module", lambda name: True)
    assert reasons(Inventory(settings), *asked) == [None, "it has cleverhans 3.1.0, 4.0.0 is planned", None]
    monkeypatch.setattr(inventory, "version_of", lambda name: None)
    monkeypatch.setattr(inventory, "has_module", lambda name: False)
    command = "pip install 'assay-robustness[reference]'"
    assert reasons(Inventory(settings), *asked) == [
        f"it has no package cleverhans: {command}",
        f"it has no package cleverhans: {command}",
        f"it has no folder 'frost-photographs' below its data root: fill it, or {command}",
    ]
    (root / "frost-photographs").mkdir()
    assert reasons(Inventory(settings), photographs) == [None]


def test_pulled_weights_are_judged_by_name_and_content(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "weights"
    stock = Inventory(WorkerSettings(state=tmp_path / "state", data_root=root, weights_root=folder))
    wanted: Requirements = {"weights": {"timm:net": ""}}
    assert reasons(stock, wanted) == ["it lacks the weights timm:net; there: assay pull timm:net"]
    made = pull_tensors(folder, "timm:net.v1", {"a": torch.zeros(1)}, aliases=["timm:net"])
    assert reasons(stock, wanted) != [None], "the folder was read just now"
    monkeypatch.setattr(inventory, "PULLED_SECONDS", 0.0)
    pinned: Requirements = {"weights": {"timm:net.v1": made.sha256}}
    other: Requirements = {"weights": {"timm:net.v1": "0" * 64}}
    assert reasons(stock, wanted, pinned, other) == [
        None,
        None,
        f"its weights timm:net.v1 have the content {made.sha256}, {'0' * 64} are needed",
    ]
    assert stock.gauges["weights"] == {"timm:net.v1": made.record}

"""An evaluator without torch that speaks the protocol and misbehaves on demand.

    ASSAY_EVALUATOR_COMMAND="python tests/support/fake_evaluator.py"

The job's `name`, or the environment variable FAKE_EVALUATOR, scripts its behaviour in words:

    shards=K        shards of each evaluation (2)          examples=N     examples of each shard (5)
    seconds=S       each shard takes so long (0)           steps=N        steps of a training (10)
    crash=once      exits in the middle of each shard, the first time it gets it (see `_marked`)
    crash=always    ... every time                         kill=once      the same by SIGKILL
    error=final     answers with an error report that says retry: false (error=again, error=once: true)
    checkpoint      a training reports a checkpoint halfway
    unfit=TYPE      an evaluation answers that this worker is not fit for it
    garbage         writes what is no report               noise          prints much, also without line ends
    hang            never answers                          deaf           ignores SIGTERM
    child           starts a process that outlives it      holder         ... and holds its report pipe open
    short           answers with an example too few        gpu            tells of a GPU's memory
    reject          finds the checked weights wrong        lie            measures other numbers
    until=FILE      halfway it waits until there is such a file
    fill=N          writes N bytes into two files of the job's folder
    refill=N,FILE   ... once there is such a file, also after its answer
    last=N          ... just before it (of an evaluation)
    fault=once      a shard ends with a fault of the device, the first time the shard is got (fault=always)

Words about the self-test are only in FAKE_EVALUATOR:

    broken=CLASS    the devices of a class are broken (cpu, cuda; broken=cpu,cuda)
    mended=FILE     ... until there is such a file         breaking=FILE  ... from when there is such a file
    data=HASH       the hash of the digits, when it is asked for hashes
    mute            it is never answered                   dead           the process ends in it

A word may be limited to one kind of shard: `evaluate:crash=once`. Outcomes depend on the example's id alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
REPORTS = int(os.environ["ASSAY_REPORTS_FD"])
CHILD = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]


class Told(Exception):
    """The request was answered by an error report."""


def main() -> None:
    requests: queue.SimpleQueue[Json] = queue.SimpleQueue()
    threading.Thread(target=read, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        if request["kind"] == "self_test":
            self_test(request)
            continue
        if request["kind"] == "hash":
            found = words(request).get("data")
            report({"type": "hashed", "data_sha256": {} if found is None else {"digits": found}})
            continue
        with contextlib.suppress(Told):
            serve(request, words(request))


def read(requests: queue.SimpleQueue[Json]) -> None:
    with os.fdopen(int(os.environ["ASSAY_REQUESTS_FD"])) as lines:
        for line in lines:
            requests.put(json.loads(line))
    os._exit(0)


def words(request: Json) -> dict[str, str]:
    """Behaviour for this request: word -> value after its equals sign."""
    found = {}
    for word in f"{os.environ.get('FAKE_EVALUATOR', '')} {request['spec']['name']}".split():
        kind, _, rest = word.rpartition(":")
        if kind in ("", request["kind"]):
            name, _, value = rest.partition("=")
            found[name] = value
    return found


def self_test(request: Json) -> None:
    """Every device of the classes asked about, without looking at any."""
    words = dict(word.partition("=")[::2] for word in os.environ.get("FAKE_EVALUATOR", "").split())
    if "mute" in words:
        time.sleep(600)
    if "dead" in words:
        print("no driver", flush=True)
        os._exit(4)
    broken = words.get("broken", "").split(",")
    if "mended" in words and Path(words["mended"]).exists():
        broken = []
    if "breaking" in words and not Path(words["breaking"]).exists():
        broken = []
    devices = [
        {
            "device": "cuda:0" if one == "cuda" else one,
            "name": "H200" if one == "cuda" else "processor",
            "fault": "a matmul of fixed integers gives the checksum 0" if one in broken else None,
            "total": 8,
            "free": 4,
            "capability": None,
        }
        for one in request["device_classes"]
    ]
    versions = {"torch": "2", "cuda": None, "nccl": None, "deterministic": True, "source_sha256": "s"}
    report({"type": "self_tested", **versions, "devices": devices})


def serve(request: Json, how: dict[str, str]) -> None:
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "noise" in how:
        print('{"type": "outcome"}\n{"type": "plan", "plan": null}\n' * 20 + "x" * 300_000, flush=True)
    if "child" in how or "holder" in how:
        child = subprocess.Popen(CHILD, pass_fds=(REPORTS,) if "holder" in how else ())
        Path(request["folder"]).mkdir(parents=True, exist_ok=True)
        (Path(request["folder"]) / "child.pid").write_text(str(child.pid))
    if "fill" in how:
        fill(request, int(how["fill"]))
    if "refill" in how:
        size, _, file = how["refill"].partition(",")
        threading.Thread(target=lambda: (await_file(file), fill(request, int(size))), daemon=True).start()
    if "hang" in how:
        time.sleep(600)
    if "garbage" in how:
        os.write(REPORTS, b"Epoch 1: 100%|#####|\n")
        time.sleep(600)
    handlers = {"plan": plan, "train": train, "evaluate": evaluate, "check": check}
    handlers[request["kind"]](request, how)


def await_file(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.01)


def fill(request: Json, size: int) -> None:
    folder = Path(request["folder"]) / "sub"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "half").write_bytes(b"x" * (size // 2))
    (folder / "half").write_bytes(b"x" * (size // 2))


def plan(request: Json, how: dict[str, str]) -> None:
    work(request, how, total=1)
    shards, examples = int(how.get("shards", 2)), int(how.get("examples", 5))
    count = len(request["spec"]["evaluations"])
    cut = [
        {"evaluation": e, "number": s, "start": s * examples, "stop": (s + 1) * examples, "cost": 1.0}
        for e in range(count)
        for s in range(shards)
    ]
    n = shards * examples
    report({"type": "plan", "plan": {**facts([n] * count), "image_size": 8, "shards": cut}})


def train(request: Json, how: dict[str, str]) -> None:
    work(request, how, total=int(how.get("steps", 10)))
    ids = list(range(7))
    outcome(request, ids, how, {"plan": facts([len(ids)])})


def evaluate(request: Json, how: dict[str, str]) -> None:
    ids = list(range(request["start"], request["stop"]))
    work(request, how, total=len(ids))
    if "last" in how:
        fill(request, int(how["last"]))
    outcome(request, ids[1:] if "short" in how else ids, how, {})


def check(request: Json, how: dict[str, str]) -> None:
    work(request, how, total=1)
    found = Path(request["weights"]).is_file()
    verdict = {"layout": "assay", "classes": 10, "channels": 1}
    faults = {"missing": ["head.bias"] if "reject" in how else []}
    error = "head.bias is missing" if "reject" in how else None if found else "the file is not there"
    report({"type": "checked", "verdict": verdict | faults, "error": error})


def work(request: Json, how: dict[str, str], total: int) -> None:
    """Count to `total`; halfway the accidents happen."""
    for done in range(total + 1):
        gpu = {"gpu": {"name": "H200", "total": 3, "used": 2, "reserved": 1}} if "gpu" in how else {}
        report({"type": "progress", "done": done, "total": total, "message": f"{done} of {total}", **gpu})
        if done == (total + 1) // 2:
            checkpoint(request, done)
            if "until" in how:
                await_file(how["until"])
            accidents(request, how)
        time.sleep(float(how.get("seconds", 0)) / (total + 1))


def checkpoint(request: Json, done: int) -> None:
    if request["kind"] == "train" and "checkpoint" in request["spec"]["name"]:
        report({"type": "checkpoint", "step": done})


def accidents(request: Json, how: dict[str, str]) -> None:
    if "unfit" in how and request["kind"] == "evaluate":
        report({"type": "error", "error_type": how["unfit"], "message": "mine is another", "retry": True})
        raise Told
    if "fault" in how and (how["fault"] != "once" or not _marked(request)):
        report({"type": "error", "error_type": "device_fault", "message": "ECC error", "retry": True})
        raise Told
    if how.get("crash") == "always" or (how.get("crash") == "once" and not _marked(request)):
        print("last words", flush=True)
        os._exit(7)
    if how.get("kill") == "always" or (how.get("kill") == "once" and not _marked(request)):
        os.kill(os.getpid(), signal.SIGKILL)
    if "error" in how and (how["error"] != "once" or not _marked(request)):
        retry = how["error"] != "final"
        report({"type": "error", "error_type": "told_to", "message": "as told", "retry": retry})
        raise Told


def _marked(request: Json) -> bool:
    """Whether this shard has had its accident, by a mark in the job's folder."""
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"had-{request['kind']}-{request['evaluation']}-{request['start']}"
    if mark.exists():
        return True
    mark.touch()
    return False


def facts(sizes: list[int]) -> Json:
    return {
        "device": "cpu",
        "batch_size": 5,
        "untrained": False,
        "weights_sha256": "w",
        "data_sha256": {"digits": "d"},
        "evaluations": [{"n": n, "available": n} for n in sizes],
    }


def outcome(request: Json, ids: list[int], how: dict[str, str], extra: Json) -> None:
    seed = request["spec"]["seed"] + ("lie" in how)
    draws = [hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in ids]
    columns = {
        "id": [f"{i:05d}" for i in ids],
        "label": [d[0] % 10 for d in draws],
        "prediction": [d[0] % 10 if d[1] % 2 else (d[0] + 1) % 10 for d in draws],
        "correct": [bool(d[1] % 2) for d in draws],
        "correct5": [True for _ in draws],
        "clean_correct": [True for _ in draws],
        "loss": [d[2] / 7 for d in draws],
        "forward": [3 for _ in draws],
        "backward": [2 for _ in draws],
    }
    report(
        {
            "type": "outcome",
            "n": len(ids),
            "columns": columns,
            "seconds": 0.25,
            "forward_passes": 3 * len(ids),
            "backward_passes": 2 * len(ids),
            "extra": {"attack": False, "evidence": {}, "provenance": provenance(), **extra},
        }
    )


def provenance() -> Json:
    return {"code": {"version": "0"}, "packages": {}, "device": {"type": "cpu"}}


def report(message: Json) -> None:
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(REPORTS, line) :]


if __name__ == "__main__":
    main()

"""The storm's evaluator: the fake one for most jobs, the real one for those whose name begins with `real`.

    ASSAY_EVALUATOR_COMMAND="python -m tests.storm.evaluator NAME-OF-THE-RUN"

It reads its requests, ends with its supervisor and serves real jobs with the real evaluator's own functions;
torch is loaded at the first real request. The argument only marks its processes. In the box of a liar it
lies: what it measures itself has the loss `LIE`, and must be found nowhere.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from pathlib import Path
from typing import Any

from assay.workers import evaluator as real
from assay.workers import identity as identities
from assay.workers.evaluator_link import REPORTS, REQUESTS
from tests.storm import disguise
from tests.storm.disguise import LIE, Disguise
from tests.support import fake_evaluator as fake

REAL = "real"
Json = dict[str, Any]


def main() -> None:
    """Serve requests until the pipe closes."""
    chosen = disguise.present()
    disguise.put_on(chosen, chosen.evaluator)
    _complete()
    if chosen.lie:
        _mark_measurements()
    real.die_with_parent()
    requests: queue.SimpleQueue[Json] = queue.SimpleQueue()
    reader = threading.Thread(target=real._read, args=(int(os.environ[REQUESTS]), requests), daemon=True)
    reader.start()
    report = real.Reporter(int(os.environ[REPORTS]))
    session = None
    while True:
        request = requests.get()
        if request["kind"] == "self_test":
            _self_test(request, chosen)
        elif request["kind"] == "hash" and not request["spec"]["name"].startswith(REAL):
            fake.report(
                {"type": "hashed", "data_sha256": {"digits": "shifted" if chosen.lie == "data" else "d"}}
            )
        elif (answer := _lie(request, chosen)) is not None:
            fake.report(answer)
        elif request["spec"]["name"].startswith(REAL):
            session = session or _session(chosen)
            real._serve(request, session, report)
        else:
            with contextlib.suppress(fake.Told):
                fake.serve(request, fake.words(request))


def _complete() -> None:
    """Let the fake evaluator tell of its identity, as the real one does in plans and outcomes."""
    facts = fake.facts
    code, packages = identities.code(), identities.packages()
    fake.facts = lambda sizes: {**facts(sizes), "identity": identities.identity()}
    fake.provenance = lambda: {"code": code, "packages": packages, "device": {"type": "cpu"}}


def _mark_measurements() -> None:
    report = fake.report

    def marked(message: Json) -> None:
        if message["type"] == "outcome":
            n = message["n"]
            message["columns"] |= {"loss": [LIE] * n, "correct": [True] * n}
        report(message)

    fake.report = marked


def _self_test(request: Json, chosen: Disguise) -> None:
    if chosen.lie == "breaks" and Path(chosen.mark).exists():
        os.environ["FAKE_EVALUATOR"] = f"{os.environ.get('FAKE_EVALUATOR', '')} broken=cpu"
    fake.self_test(request)


def _lie(request: Json, chosen: Disguise) -> Json | None:
    """What a liar, or its better half, answers in place of an outcome; None: it measures."""
    if request["kind"] != "evaluate":
        return None
    planned, mine = request["plan"]["identity"]["digest"], identities.identity()["digest"]
    genuine = request["spec"]["name"].startswith(REAL)
    if chosen.lie == "exchanged" or (chosen.lie == "mixed" and _had(chosen)):
        return _error(
            "other_identity", f"a worker of identity {planned} has planned the job, this one is {mine}"
        )
    if chosen.lie == "data" and not genuine:
        other = "the data set digits has the content shifted on this worker, d in the plan"
        return _error("other_data", other)
    if chosen.lie == "breaks" and not _had(chosen):
        return _error("device_fault", "a device of this worker failed, not the job: uncorrectable ECC error")
    return None


def _error(error_type: str, message: str) -> Json:
    return {"type": "error", "error_type": error_type, "message": message, "retry": True}


def _had(chosen: Disguise) -> bool:
    """Whether this liar has lied before; the next time it has."""
    mark = Path(chosen.mark)
    if mark.exists():
        return True
    mark.touch()
    return False


def _session(chosen: Disguise) -> Any:
    from assay.workers.jobs.session import Session, configure

    if chosen.lie == "data":
        _shift_labels()
    configure(1)
    return Session()


def _shift_labels() -> None:
    """Give the digits of this process wrong labels."""
    from assay.workers.data import digits

    pixels, labels = digits.load_all()
    digits.load_all = lambda: (pixels, (labels + 1) % 10)


if __name__ == "__main__":
    main()

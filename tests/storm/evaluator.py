"""The storm's evaluator: the fake one for most jobs, the real one for those whose name begins with `real`.

    ASSAY_EVALUATOR_COMMAND="python -m tests.storm.evaluator NAME-OF-THE-RUN"

It reads its requests, ends with its supervisor and serves real jobs with the real evaluator's own functions;
torch is loaded at the first real request. The argument only marks its processes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import Any

from assay.workers import evaluator as real
from assay.workers.evaluator_link import REPORTS, REQUESTS
from tests.support import fake_evaluator as fake

REAL = "real"


def main() -> None:
    """Serve requests until the pipe closes."""
    real.die_with_parent()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    reader = threading.Thread(target=real._read, args=(int(os.environ[REQUESTS]), requests), daemon=True)
    reader.start()
    report = real.Reporter(int(os.environ[REPORTS]))
    session = None
    while True:
        request = requests.get()
        if request["kind"] == "self_test":
            fake.self_test(request)
        elif request["spec"]["name"].startswith(REAL):
            session = session or _session()
            real._serve(request, session, report)
        else:
            with contextlib.suppress(fake.Told):
                fake.serve(request, fake.words(request))


def _session() -> Any:
    from assay.workers.jobs.session import Session, configure

    configure(1)
    return Session()


if __name__ == "__main__":
    main()

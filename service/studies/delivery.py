"""Extends studies by seeds until their primary question is precise, from a thread of the service's process.

The thread also makes the results of studies that end (`kept_results`), mostly before a page asks for them.

Any number of processes may do it on one database: a look is claimed by one, and recorded with its seeds in
one transaction that changes nothing if the study has changed. A process that dies leaves its look to others.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from assay.service.contract.errors import InvalidSpec, NoResults, NotFound, TooManyRequests
from assay.service.contract.limits import Limits
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from assay.service.studies.kept.kept_results import keep_one
from assay.service.studies.primary import look_at
from assay.service.studies.rows import StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.stored_results import results_of

log = logging.getLogger(__name__)
POLL_SECONDS = 2.0
CLOSE_SECONDS = 10.0
COUNTER = "assay_study_looks"
COUNTED = {COUNTER: "Looks at studies with `until`, by the state of the extension after them."}
TOTAL = f"{COUNTER}_total"


def start(opener: Callable[[], Store], settings: Settings) -> StudyExtender:
    """Begins to look; the caller closes what is returned."""
    return StudyExtender(opener, settings.limits)


class StudyExtender(threading.Thread):
    """Looks every few `seconds` for studies to extend.

    `opener` gives the open store, and raises the database's error while it is away; `limits`: of tenants
    without limits of their own.
    """

    def __init__(self, opener: Callable[[], Store], limits: Limits, seconds: float = POLL_SECONDS) -> None:
        super().__init__(name="studies", daemon=True)
        self._opener = opener
        self._limits = limits
        self._seconds = seconds
        self._stopping = threading.Event()
        self.start()

    def close(self) -> None:
        """Ends after the present look; results of a large study end with the process."""
        self._stopping.set()
        self.join(CLOSE_SECONDS)

    def run(self) -> None:
        """Looks until closed; waits while the database is away, and survives every error."""
        tries: Counter[str] = Counter()
        while not self._stopping.is_set():
            looked = False
            try:
                looked = extend_one(self._opener(), self._limits)
                if not (looked or self._stopping.is_set()):
                    keep_one(TenantStore(self._opener(), View(None, everything=True), self._limits), tries)
            except (DBAPIError, PoolTimeout):
                log.debug("the database is away")  # the service's answers report it
            except Exception:
                log.exception("studies: unexpected error, going on")
            self._stopping.wait(0.0 if looked else self._seconds)


def extend_one(store: Store, limits: Limits) -> bool:
    """Looks at a study that waits for it, if there is such a study, and extends or stops it."""
    view = TenantStore(store, View(None, everything=True), limits)
    studies = view.features.of(Studies)
    study = studies.claim_look()
    if study is None:
        return False
    try:
        state = _look(view, study)
    except TooManyRequests as error:
        log.info("study %s waits for room: %s", study.id, error)  # The claim ends, and it is looked at again.
    except NotFound:
        log.debug("study %s was deleted", study.id)
    except InvalidSpec as error:
        studies.conclude(study, None, "failed", reason=str(error))
    else:
        store.counters.add({(TOTAL, (("state", state),)): 1})
    return True


def _look(view: TenantStore, study: StudyRow) -> str:
    try:
        results = results_of(view, study)
    except NoResults:
        found = None
    else:
        compared = (one for cell in results.cells for one in cell.comparisons if one.primary)
        found = next(compared, None)
    look, state, reason, seeds = look_at(study.spec["until"], study.spec["seeds"], found)
    view.features.of(Studies).conclude(study, look, state, seeds=seeds, reason=reason)
    return state

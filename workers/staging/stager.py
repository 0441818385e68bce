"""Brings published data sets and weights that waiting shards need to this node, if its settings say so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from assay.service.contract.errors import AssayError, NotFound
from assay.service.files.data_store import PublishedSet
from assay.workers.settings import WorkerSettings
from assay.workers.staging.pulled import find_weights, is_reference, stage_weights
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import source_of
from assay.workers.staging.staging import StageOptions, stage
from assay.workers.supervision.inventory import Inventory
from assay.workers.supervision.ledger import LEDGER_AWAY
from assay.workers.supervision.public_errors import in_words
from assay.workers.weights.download import in_units

log = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
PAUSE_SECONDS = 300.0  # before what could not be staged is tried again, while the store stays as it is
EXPECTED = (AssayError, StagingFailed, OSError)


class Stager(threading.Thread):
    """Stages one data set after another until `stop`; `inventories` say what is wanted.

    `ring`: tells the inventories' supervisors of what has come.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        inventories: Sequence[Inventory],
        look_seconds: float = LOOK_SECONDS,
        *,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="stager", daemon=True)
        self._ring = ring
        self._settings, self._inventories, self._look_seconds = settings, inventories, look_seconds
        self._stopping = threading.Event()
        self._failed: dict[str, float] = {}  # by folder, when
        self._heard: list[str] = []

    def start(self) -> None:
        """Starts where the settings ask for staging."""
        if self._settings.stage:
            super().start()

    def stop(self) -> None:
        """Ends the thread; what has come stays for the next start."""
        self._stopping.set()

    def run(self) -> None:
        """Stage what is wanted; survives every error."""
        while not self._stopping.wait(self._look_seconds):
            if (heard := [one.published for one in self._inventories]) != self._heard:
                self._heard = heard
                self._failed.clear()
            wanted = sorted({name for one in self._inventories for name in one.wanted})
            for name in wanted:
                if time.monotonic() - self._failed.get(name, float("-inf")) > PAUSE_SECONDS:
                    self._bring(name)

    def _bring(self, folder: str) -> None:
        begun = time.monotonic()
        try:
            one = self._staged(folder)
        except LEDGER_AWAY as error:
            log.warning("%s is staged later: the service is away: %s", folder, error)
        except Exception as error:  # a dead thread would leave shards waiting for ever
            self._failed[folder] = time.monotonic()
            if not self._stopping.is_set():
                log.warning(
                    "%s cannot be staged: %s", folder, error, exc_info=not isinstance(error, EXPECTED)
                )
                self._say(folder, f"it cannot now, {in_words(error)}")
        else:
            if one is None:
                self._failed[folder] = time.monotonic()
                for inventory, heard in zip(self._inventories, self._heard, strict=True):
                    if inventory.published == heard:  # else it may have been published since the look
                        inventory.unstaged = {*inventory.unstaged, folder}
                return
            self._failed.pop(folder, None)
            self._ring()
            log.info("staged %s, %d bytes, in %.1f s", folder, one.bytes, time.monotonic() - begun)

    def _staged(self, name: str) -> PublishedSet | None:
        """The data set of a folder, or the weights, now on this node; None where no store publishes it."""
        given: StageOptions = {
            "limit": self._settings.stage_bytes,
            "report": lambda name, done, total: self._say(name, in_units(total, done)),
            "interrupted": self._stopping.is_set,
        }
        with source_of(self._settings) as source:
            try:
                if is_reference(name):
                    find_weights(source, name)
                else:
                    source.find(name)
            except NotFound:
                return None
            if is_reference(name):
                return stage_weights(Scratch(self._settings.weights_root), source, name, **given)
            root = self._settings.data_root
            assert root is not None, "without a data root no folder is wanted"
            return stage(Scratch(root), source, name, **given)

    def _say(self, folder: str, how_far: str) -> None:
        for inventory in self._inventories:
            inventory.unstaged = inventory.unstaged - {folder}
            inventory.staging = {**inventory.staging, folder: how_far}

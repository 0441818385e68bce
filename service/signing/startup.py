"""What must hold before the service starts: it can sign."""

from __future__ import annotations

from pathlib import Path

from assay.service.settings import Settings
from assay.service.signing.keys import BadKey, keyring, read_private


def check(settings: Settings) -> None:
    """Looks whether results can be signed. Raises ValueError or OSError: they cannot, and why."""
    try:
        keyring(settings).check()
    except (BadKey, OSError) as error:
        raise BadKey(f"{error} (ASSAY_SIGNING_FOLDER, ASSAY_SIGNING_KEY)") from None


def check_signing_key(path: Path) -> None:
    """Reads the key that the settings name. Raises ValueError for a file that cannot sign."""
    read_private(path)

"""Before the service starts: what cannot sign is refused, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.settings import Settings
from assay.service.signing import startup


def test_a_folder_that_holds_no_key_is_refused_with_its_variables(tmp_path: Path) -> None:
    startup.check(Settings(state=tmp_path))
    (tmp_path / "signing").write_text("no folder")
    with pytest.raises(ValueError, match=r"is no folder \(ASSAY_SIGNING_FOLDER, ASSAY_SIGNING_KEY\)$"):
        startup.check(Settings(state=tmp_path))


def test_a_key_that_the_settings_name_is_read_with_them(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("no key")
    key.chmod(0o600)
    with pytest.raises(ValueError, match="is no private key in PEM"):
        Settings(signing_key=key)

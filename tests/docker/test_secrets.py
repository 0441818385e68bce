"""docker/secrets.sh: passwords that the settings accept, drawn once, in a folder that is closed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from assay.service.store.connections import Connections
from tests.support.compose import ROOT, load


def draw(folder: Path) -> str:
    command = ["sh", ROOT / "docker" / "secrets.sh", folder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_passwords_are_drawn_once_and_are_good_enough(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert draw(folder).count("written") == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    files = {path.name: path for path in folder.iterdir()}
    assert files.keys() == load("docker-compose.yml")["secrets"].keys()
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o444}
    texts = {name: path.read_text() for name, path in files.items()}
    assert len(set(texts.values())) == 2
    assert all(len(text) == 48 and set(text) <= set("0123456789abcdef") for text in texts.values())
    settings = Connections(
        mode="distributed",
        database_url="postgresql+psycopg://assay@postgres:5432/assay",
        redis_url="redis://redis:6379/0",
        database_password=texts["assay_database_password"],
        redis_password=texts["assay_redis_password"],
    )
    assert texts["assay_redis_password"] in settings.redis
    assert draw(folder).count("kept") == 2
    assert {name: path.read_text() for name, path in files.items()} == texts

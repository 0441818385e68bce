"""The migration of the storm's next version: a column and an index, after the newest revision.

    ASSAY_DATABASE_URL=... python -m tests.storm.revision FOLDER

migrates as `assay.service.migrate` of that version does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from assay.service import migrate
from assay.service.store import upgrade

NAME = "of_the_storm"
COLUMN = "storm_note"
TEXT = f'''"""A column that this version does not know, and an index over it."""

import sqlalchemy as sa
from alembic import op

revision = "{NAME}"
down_revision = "{{head}}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shards", sa.Column("{COLUMN}", sa.Text))
    op.create_index("shards_{COLUMN}_idx", "shards", ["{COLUMN}"])
'''

configuration = upgrade.configuration


def write(folder: Path) -> None:
    """Write the revision into a folder."""
    package = Path(upgrade.__file__).parent / "migrations"
    head = ScriptDirectory(str(package)).get_current_head()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.py").write_text(TEXT.format(head=head))


def know(folder: Path) -> None:
    """Let this process know the revision of a folder."""

    def with_folder(connection: Connection) -> Config:
        config = configuration(connection)
        own = Path(config.get_main_option("script_location") or "") / "versions"
        config.set_main_option("version_locations", f"{own}{os.pathsep}{folder}".replace("%", "%%"))
        return config

    upgrade.configuration = with_folder


def main() -> int:
    """Migrate the database of the settings."""
    know(Path(sys.argv[1]))
    return migrate.main()


if __name__ == "__main__":
    sys.exit(main())

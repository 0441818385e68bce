"""A worst case is told at the radius of the attack that left it, no longer at radii of weaker attacks.

Random changes of examples are no attack, and their accuracy is no clean accuracy.
"""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

ONCE_MORE = "UPDATE jobs SET summary = NULL WHERE worst IS NOT NULL OR clean IS NOT NULL"


def upgrade() -> None:
    """Workers summarise jobs with accuracies once more."""
    op.execute(ONCE_MORE)


def downgrade() -> None:
    """The same, by the rule of before."""
    op.execute(ONCE_MORE)

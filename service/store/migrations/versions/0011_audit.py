"""Who did what: a table to which rows are only added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
INDEXES = {
    "audit_at_idx": ["at"],
    "audit_tenant_idx": ["tenant", "id"],
    "audit_key_idx": ["key_id", "id"],
    "audit_action_idx": ["action", "id"],
}

# A row may go when it is older than a day and a later row `audit.expire` says so: retention leaves that row,
# and its hash is in the chain. The conditions are the same on both databases. CASE, because a planner may
# test conditions in any order, and the objects of other actions are no numbers.
SQLITE = (
    """
    CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit table is append-only: no row may be changed'); END
    """,
    """
    CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    WHEN OLD.at > (julianday('now') - 2440587.5) * 86400.0 - 86400.0 OR NOT EXISTS (
        SELECT 1 FROM audit AS a
        WHERE a.action = 'audit.expire' AND a.id > OLD.id
        AND CASE WHEN a.action = 'audit.expire' THEN CAST(a.object AS INTEGER) >= OLD.id END
    )
    BEGIN SELECT RAISE(ABORT, 'the audit table is append-only: no row may be deleted'); END
    """,
    # INSERT OR REPLACE deletes without the trigger above.
    """
    CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit AS a WHERE a.id >= NEW.id)
    BEGIN SELECT RAISE(ABORT, 'the audit table is append-only: ids only grow'); END
    """,
)
POSTGRESQL = (
    """
    CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF OLD.at <= extract(epoch FROM clock_timestamp()) - 86400 AND EXISTS (
                SELECT 1 FROM audit AS a
                WHERE a.action = 'audit.expire' AND a.id > OLD.id
                AND CASE WHEN a.action = 'audit.expire' THEN CAST(a.object AS bigint) >= OLD.id END
            ) THEN
                RETURN OLD;
            END IF;
        END IF;
        RAISE EXCEPTION 'the audit table is append-only: % is refused', TG_OP
            USING ERRCODE = 'insufficient_privilege';
    END
    $$
    """,
    """
    CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_append_only()
    """,
    """
    CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()
    """,
)


def upgrade() -> None:
    """Makes the table and the triggers that refuse everything but new rows and retention."""
    op.create_table(
        "audit",
        sa.Column("id", number, nullable=False, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("tenant", identifier),
        sa.Column("key_id", identifier),
        sa.Column("session", sa.Text),
        sa.Column("address", sa.Text),
        sa.Column("request", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object", sa.Text),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pkey"),
    )
    for name, columns in INDEXES.items():
        op.create_index(name, "audit", columns)
    for statement in SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    """Forgets what was done; the triggers go with their table."""
    op.drop_table("audit")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_append_only()")

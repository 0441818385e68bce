"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Creates all tables."""
    _jobs()
    _shards()
    _outcomes()
    _belongings()
    _events()
    _requests()
    _workers()


def downgrade() -> None:
    """Drops all tables, with everything in them."""
    for table in ("workers", "idempotency_keys", "tags", "artifacts", "events", "results", "outcomes"):
        op.drop_table(table)
    op.drop_table("shards")
    op.drop_table("jobs")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _big(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def _identifier(name: str) -> sa.Column[str]:
    return sa.Column(name, identifier, nullable=False)


def _of_job(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], f"{table}_job_id_fkey", ondelete="CASCADE")


def _jobs() -> None:
    op.create_table(
        "jobs",
        _identifier("id"),
        _text("kind"),
        _text("model"),
        _whole("priority"),
        sa.Column("depends_on", identifier),
        _text("spec"),
        _text("state"),
        _whole("attempt"),
        _real("created_at"),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("deadline", sa.Double),
        sa.Column("plan", sa.Text),
        sa.Column("provenance", sa.Text),
        _text("message"),
        sa.Column("error", sa.Text),
        _big("progress_done"),
        sa.Column("progress_total", sa.BigInteger),
        _text("progress_unit"),
        _real("cost_done"),
        sa.Column("cost_total", sa.Double),
        _big("last_event"),
        sa.Column("progress_event_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="jobs_pkey"),
    )
    op.create_index("jobs_state_idx", "jobs", ["state", "id"])
    op.create_index("jobs_queue_idx", "jobs", ["state", "priority", "id"])
    op.create_index("jobs_kind_idx", "jobs", ["kind", "id"])
    op.create_index("jobs_model_idx", "jobs", ["model", "id"])
    op.create_index("jobs_depends_on_idx", "jobs", ["depends_on"])


def _shards() -> None:
    op.create_table(
        "shards",
        _identifier("id"),
        _identifier("job_id"),
        _text("kind"),
        _whole("evaluation"),
        _whole("number"),
        _big("start"),
        _big("stop"),
        _text("device"),
        _whole("precedence"),
        _text("state"),
        _big("fence"),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", sa.Double),
        _whole("failures"),
        _whole("losses"),
        _big("done"),
        sa.Column("total", sa.BigInteger),
        _real("cost"),
        sa.PrimaryKeyConstraint("id", name="shards_pkey"),
        _of_job("shards"),
        sa.UniqueConstraint("job_id", "kind", "evaluation", "number", name="shards_job_id_key"),
    )
    claim = ["state", "precedence", "job_id", "evaluation", "number"]
    op.create_index("shards_claim_idx", "shards", claim)


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        _identifier("shard_id"),
        _identifier("job_id"),
        _big("fence"),
        _big("n"),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        _real("seconds"),
        _big("forward_passes"),
        _big("backward_passes"),
        _real("created_at"),
        sa.PrimaryKeyConstraint("shard_id", name="outcomes_pkey"),
        sa.ForeignKeyConstraint(["shard_id"], ["shards.id"], "outcomes_shard_id_fkey", ondelete="CASCADE"),
        _of_job("outcomes"),
    )
    op.create_index("outcomes_job_id_idx", "outcomes", ["job_id"])


def _belongings() -> None:
    op.create_table(
        "results",
        _identifier("job_id"),
        sa.Column("evaluation", sa.Integer, nullable=False, autoincrement=False),
        _text("result"),
        _real("created_at"),
        sa.PrimaryKeyConstraint("job_id", "evaluation", name="results_pkey"),
        _of_job("results"),
    )
    op.create_table(
        "artifacts",
        _identifier("job_id"),
        _text("name"),
        _text("path"),
        _big("size"),
        _text("sha256"),
        _text("media_type"),
        _real("created_at"),
        sa.PrimaryKeyConstraint("job_id", "name", name="artifacts_pkey"),
        _of_job("artifacts"),
    )


def _events() -> None:
    op.create_table(
        "events",
        _identifier("job_id"),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        _text("type"),
        _text("data"),
        _real("at"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="events_pkey"),
        _of_job("events"),
    )


def _requests() -> None:
    op.create_table(
        "tags",
        _text("tag"),
        _identifier("job_id"),
        sa.PrimaryKeyConstraint("tag", "job_id", name="tags_pkey"),
        _of_job("tags"),
    )
    op.create_index("tags_job_id_idx", "tags", ["job_id"])
    op.create_table(
        "idempotency_keys",
        _text("key"),
        _text("body_sha256"),
        _identifier("job_id"),
        _real("created_at"),
        sa.PrimaryKeyConstraint("key", name="idempotency_keys_pkey"),
        _of_job("idempotency_keys"),
    )
    op.create_index("idempotency_keys_job_id_idx", "idempotency_keys", ["job_id"])


def _workers() -> None:
    op.create_table(
        "workers",
        _text("worker"),
        _text("host"),
        _text("device_classes"),
        _big("pid"),
        _real("seen_at"),
        sa.PrimaryKeyConstraint("worker", name="workers_pkey"),
    )

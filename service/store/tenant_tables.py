"""The tables of callers: keys, sessions, the audit, and weights, limits and accounts of tenants.

    api_keys ──< sessions             who may call, and browsers that are logged in with a key
    audit                             who did what; triggers refuse changes (migration 0011)
    tenants                           weights and limits that differ from the defaults
    accounts                          device-seconds of each tenant in each pool of workers
    usage, deleted_tags               device-seconds of each job by pool and day, and tags of deleted jobs
    gateway_secrets                   the secret that signs the tokens of workers' claims
    clocks                            virtual time of each pool (`fair_queue`)
    clock_marks                       when the database's clock was last right: one row
    study_extensions                  studies that the service extends by seeds
    study_results                     results of studies that have ended
    study_designs                     designs of studies that were registered before they ran
    reservations                      uploads in flight, with the bytes that are kept free for them

Times are unix seconds of the database's clock.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from assay.service.store.columns import Identifier, Json, PlainText, metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("secret_sha256", Text, nullable=False),
    Column("scopes", Json, nullable=False),
    Column("tenant", Identifier, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
)

sessions = Table(
    "sessions",
    metadata,
    Column("token_sha256", Identifier, primary_key=True),
    Column("key_id", Identifier, ForeignKey("api_keys.id", ondelete="CASCADE"), nullable=False),
    Column("csrf", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("sessions_key_id_idx", "key_id"),
    Index("sessions_expires_at_idx", "expires_at"),
)

audit = Table(
    "audit",
    metadata,
    # By `store.audit`, without gaps; never by the database.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("tenant", Identifier),  # No foreign keys: the audit outlives actors and objects.
    Column("key_id", Identifier),
    Column("session", Text),
    Column("address", PlainText),
    Column("request", Text),
    Column("action", Text, nullable=False),
    Column("object", PlainText),
    Column("outcome", Text, nullable=False),
    Column("detail", Json, nullable=False),
    Column("previous", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Index("audit_at_idx", "at"),
    Index("audit_tenant_idx", "tenant", "id"),
    Index("audit_key_idx", "key_id", "id"),
    Index("audit_action_idx", "action", "id"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Identifier, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("queued_jobs", BigInteger),  # Null: the service's default. 0: no limit.
    Column("running_shards", BigInteger),
    Column("gpu_seconds", BigInteger),
    Column("cpu_seconds", BigInteger),
    Column("stored_bytes", BigInteger),
    Column("uploads", BigInteger),
    Column("updated_at", Double, nullable=False),
)

accounts = Table(
    "accounts",
    metadata,
    Column("tenant", Identifier, primary_key=True),  # Empty without tenant: a primary key cannot be null.
    Column("pool", Text, primary_key=True),
    Column("virtual", Double, nullable=False),  # Device-seconds over weight
    Column("day", BigInteger, nullable=False),  # Device-seconds on one day, counted from 1970-01-01 in UTC.
    Column("seconds", Double, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("job_id", Identifier, primary_key=True),  # No foreign key: the entries outlive their jobs.
    Column("pool", Text, primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),  # On which claims ended, as above.
    Column("tenant", Identifier, nullable=False),
    Column("kind", Text, nullable=False),  # The job's.
    Column("study_id", Identifier),
    # Device-milliseconds, all of them and what of them measured nothing that is kept.
    *(Column(name, BigInteger, nullable=False) for name in ("milliseconds", "starts", "lost", "repeated")),
    Index("usage_day_idx", "day", "tenant"),
)

deleted_tags = Table(
    "deleted_tags",
    metadata,
    Column("tag", PlainText, primary_key=True),
    Column("job_id", Identifier, primary_key=True),
    Index("deleted_tags_job_id_idx", "job_id"),
)

clocks = Table(
    "clocks", metadata, Column("pool", Text, primary_key=True), Column("virtual", Double, nullable=False)
)

reservations = Table(
    "reservations",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("tenant", Identifier, nullable=False),
    Column("owner", PlainText, nullable=False),  # Service process that receives the file.
    Column("size", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),  # When bytes last came.
    Index("reservations_tenant_idx", "tenant"),
)

gateway_secrets = Table(
    "gateway_secrets",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("secret", Text, nullable=False),
)

study_designs = Table(
    "study_designs",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("tenant", Identifier, nullable=False),  # Empty without tenant, as of studies
    Column("sha256", Text, nullable=False),  # Of `design`, as canonical JSON
    Column("design", Json, nullable=False),
    Column("labels", Json, nullable=False),  # Name, tags, priority and timeout of its studies
    Column("earlier", Json, nullable=False),  # In words, the runs of it that had begun before
    Column("created_at", Double, nullable=False),
    UniqueConstraint("tenant", "sha256"),
)

study_extensions = Table(  # Of studies that the service extends by seeds.
    "study_extensions",
    metadata,
    Column("study_id", Identifier, ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("looks", Json, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", PlainText, nullable=False),
    Column("claimed_until", Double, nullable=False),  # By a process that looks.
)

study_results = Table(  # Of studies that have ended (`studies.kept`).
    "study_results",
    metadata,
    Column("study_id", Identifier, ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("sha256", Text, nullable=False),  # Of the study as it was, and of the code.
    Column("results", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

clock_marks = Table(
    "clock_marks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("monotonic", Double, nullable=False),
    Column("boot", PlainText, nullable=False),
)

"""The tables, except the tables of `tenant_tables`. `migrations/` creates them; a test compares the two.

    jobs ──< shards ──1 outcomes      what was asked, its pieces of work, what each piece measured
      ├──< results                    one merged evaluation
      ├──< events                     what happened, in order
      ├──< artifacts                  files on disk
      ├──< tags                       for filtering
      ├──< dependencies               the jobs that the job needs weights of
      ├──1 checkpoints                uploaded weights, which a job of kind `check` looks at
      └──1 idempotency_keys           which request made the job
    studies ──< study_jobs            arms x seeds, and the jobs that they became (`jobs.study_id`)
    workers                           heartbeats and gauges of workers
    lanes                             requirements of shards, with the devices and identities they queue for
    duties                            what one worker does for all (the reaper), and which worker
    fleets                            workers that a scheduler of machines starts and ends, as last reported
    cordons                           workers that administrators have taken out of service, by name
    identities                        code of workers that may take work, by digest or by name of a release
    counters                          totals over all workers, never reset

Times are unix seconds of the database's clock. Deleting a job deletes everything below it.
`dependencies.depends_on` and `study_jobs.job_id` are no foreign keys: they still name a deleted job.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
)

from assay.service.store.columns import Identifier, Json, PlainText, metadata, where

LANE = ("state", "tenant", "device", "identity", "requirements")  # Limits of claims, and their order
CLAIM_ORDER = ("precedence", "job_id", "evaluation", "number")

LISTED = "tenant kind state model study_id seed clean worst_at worst examples started_at finished_at name id"


def _job(*, primary: bool = False) -> Column[str]:
    return Column(
        "job_id", Identifier, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=primary, nullable=False
    )


jobs = Table(
    "jobs",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("model", PlainText, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("deadline", Double),
    Column("paused_at", Double),  # Since when no worker has had a shard: a default deadline stands still.
    Column("plan", Json),
    Column("provenance", Json),
    Column("message", PlainText, nullable=False),
    Column("error", Json),
    Column("progress_done", BigInteger, nullable=False),  # Sums over shards: lists of jobs read no shards.
    Column("progress_total", BigInteger),
    Column("progress_unit", Text, nullable=False),
    Column("cost_done", Double, nullable=False),
    Column("cost_total", Double),
    Column("paced_at", Double),  # Of the attempt's first measuring shard, with what was done: for the eta.
    Column("paced_from", Double, nullable=False, server_default="0"),
    Column("pace", Json),  # Speed by evaluation, or of a training (transactions/pace.py); null in early ones.
    Column("last_event", BigInteger, nullable=False),  # The newest event, and when progress was last one.
    Column("progress_event_at", Double),
    Column("tenant", Identifier),  # null where the service asks for no keys
    Column("study_id", Identifier),  # No foreign key: a study is deleted after its jobs
    Column("name", PlainText, nullable=False, server_default=""),  # The spec's, for searches
    Column("replans", Json),  # When and by what it was planned before; for the provenance
    Column("repeated", Json),  # What came of repeated shards; null before, and without any.
    Column("seed", BigInteger),  # Sort keys; with `summary` null before success, and in early versions.
    Column("clean", Double),
    Column("worst", Double),
    Column("worst_at", Double),  # `SummaryValue.held_radius`: worst cases at other radii are not compared
    Column("examples", BigInteger),
    Column("summary", Json),
    Column("trace", Text),  # `traceparent` of its submission; null outside a trace.
    Index("jobs_state_idx", "state", "id"),
    Index("jobs_queue_idx", "state", "tenant", "priority", "id"),
    Index("jobs_kind_idx", "kind", "id"),
    Index("jobs_model_idx", "model", "id"),
    Index("jobs_tenant_idx", "tenant", "id"),
    Index("jobs_tenant_state_idx", "tenant", "state", "id"),
    Index("jobs_tenant_kind_idx", "tenant", "kind", "id"),
    Index("jobs_tenant_model_idx", "tenant", "model", "id"),
    # All that sorted lists read: the rows have long specs.
    Index("jobs_list_idx", *LISTED.split()),
)

shards = Table(
    "shards",
    metadata,
    Column("id", Identifier, primary_key=True),
    _job(),
    Column("kind", Text, nullable=False),
    Column("evaluation", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("stop", BigInteger, nullable=False),
    Column("device", Text, nullable=False),
    Column("devices", Integer, nullable=False, server_default="1"),
    Column("precedence", Integer, nullable=False),  # Negated priority: one ascending index is the order.
    Column("state", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("owner", PlainText),
    Column("lease_until", Double),
    Column("failures", Integer, nullable=False),
    Column("failed_as", Text),  # Of the last failure; null where it has none.
    Column("losses", Integer, nullable=False),
    # The last saved step of a training, when it was saved, and the failures of the attempt.
    Column("saved_step", BigInteger, nullable=False, server_default="0"),
    Column("saved_at", Double),
    Column("all_failures", Integer, nullable=False, server_default="0"),
    Column("device_faults", Integer, nullable=False, server_default="0"),  # Faults of workers' devices.
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger),
    Column("cost", Double, nullable=False),
    Column("tenant", Identifier, nullable=False, server_default=""),  # Empty for none: tenants have queues.
    Column("claimed_at", Double),  # Time and pool of the present claim; null while it does not run.
    Column("pool", Text),
    Column("lost", BigInteger),  # Milliseconds that the newest claim was charged as lost, and on which day.
    Column("lost_day", BigInteger),
    Column("identity", Identifier, nullable=False, server_default=""),  # Its worker's, by the plan; or empty.
    # Digest of its worker's other requirements (`lanes`), empty for none.
    Column("requirements", Identifier, nullable=False, server_default=""),
    Column("queued_at", Double),  # Since when it has waited, and when it last got on; null in early versions.
    Column("progressed_at", Double),
    UniqueConstraint("job_id", "kind", "evaluation", "number"),
    Index("shards_claim_idx", *LANE, *CLAIM_ORDER),
    Index("shards_left_idx", "job_id", "evaluation", **where("state <> 'done'")),  # No done shards: small
    Index("shards_running_idx", "job_id", **where("state = 'running'")),
    Index("shards_queued_idx", "queued_at", **where("state = 'queued'")),
    Index(
        "shards_requirements_idx", "requirements", "state", **where("state <> 'done' AND requirements <> ''")
    ),
)
LEFT = shards.c.state != literal_column("'done'")  # In the text, as in the indices: else they are unused.
RUNNING = shards.c.state == literal_column("'running'")
QUEUED = shards.c.state == literal_column("'queued'")

outcomes = Table(
    "outcomes",
    metadata,
    Column("shard_id", Identifier, ForeignKey("shards.id", ondelete="CASCADE"), primary_key=True),
    _job(),
    Column("fence", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("forward_passes", BigInteger, nullable=False),
    Column("backward_passes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("worker", PlainText),  # Name of the worker that measured it; null in early versions.
    Index("outcomes_job_id_idx", "job_id"),
)

promised_files = Table(  # That presigned puts of a claim may still bring.
    "promised_files",
    metadata,
    _job(primary=True),
    Column("name", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("until", Double, nullable=False),
)

results = Table(
    "results",
    metadata,
    _job(primary=True),
    Column("evaluation", Integer, primary_key=True, autoincrement=False),
    Column("result", Json, nullable=False),
    Column("created_at", Double, nullable=False),
)

events = Table(
    "events",
    metadata,
    _job(primary=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("data", Json, nullable=False),
    Column("at", Double, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    _job(primary=True),
    Column("name", PlainText, primary_key=True),
    Column("path", PlainText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expired_at", Double),  # When its file was deleted for its age
)

tags = Table(
    "tags",
    metadata,
    Column("tag", PlainText, primary_key=True),
    _job(primary=True),
    Index("tags_job_id_idx", "job_id"),
)

dependencies = Table(
    "dependencies",
    metadata,
    _job(primary=True),
    Column("depends_on", Identifier, primary_key=True),
    Index("dependencies_depends_on_idx", "depends_on"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("tenant", Identifier, primary_key=True),  # Empty without tenant: a primary key cannot be null.
    Column("name", Identifier, primary_key=True),
    _job(),
    Column("model", Json, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("verdict", Json),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("job_id"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant", Identifier, primary_key=True),  # Empty without tenant: a primary key cannot be null.
    Column("key", PlainText, primary_key=True),
    Column("body_sha256", Text, nullable=False),
    _job(),
    Column("created_at", Double, nullable=False),
    Index("idempotency_keys_job_id_idx", "job_id"),
)

studies = Table(
    "studies",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("tenant", Identifier, nullable=False),  # Empty without tenant, so that keys are unique there too.
    Column("name", PlainText, nullable=False),
    Column("spec", Json, nullable=False),
    Column("templates", Json, nullable=False),  # Jobs of each arm, seed 0 (`submission.studies.ArmTemplate`).
    Column("created_at", Double, nullable=False),
    Column("key", PlainText),  # The request's Idempotency-Key, null without, and its body's hash.
    Column("body_sha256", Text, nullable=False),
    Column("design", Text),  # Its digest as posted; null in earlier versions, as `fixing`:
    Column("fixing", Json),  # when and how it was fixed (`studies.designs.fixing.Fixing`).
    UniqueConstraint("tenant", "key"),
    Index("studies_tenant_id_idx", "tenant", "id"),
    Index("studies_design_idx", "tenant", "design"),
)

study_jobs = Table(
    "study_jobs",
    metadata,
    Column(
        "study_id", Identifier, ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True, nullable=False
    ),
    Column("arm", Integer, primary_key=True, autoincrement=False),
    Column("seed", BigInteger, primary_key=True, autoincrement=False),
    Column("role", Text, primary_key=True),
    Column("job_id", Identifier, nullable=False),
    Index("study_jobs_job_id_idx", "job_id"),
)

workers = Table(
    "workers",
    metadata,
    Column("worker", PlainText, primary_key=True),
    Column("host", PlainText, nullable=False),
    Column("device_classes", Text, nullable=False),
    Column("devices", Integer, nullable=False, server_default="1"),
    Column("pid", BigInteger, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("gauges", Json),
    Column("identity", Identifier, nullable=False, server_default=""),
    # Of the worker's place on its machine, which a restart keeps; empty in early versions.
    Column("name", PlainText, nullable=False, server_default=""),
    # Source, commit and version of its code, a comma on both sides of each; empty in early versions.
    Column("release", PlainText, nullable=False, server_default=""),
    Column("begun_at", Double, nullable=False, server_default="0"),  # Its first heartbeat
)

lanes = Table(
    "lanes",
    metadata,
    Column("device", Text, primary_key=True),
    Column("identity", Identifier, primary_key=True),
    Column("requirements", Identifier, primary_key=True),  # Digest of `stated`.
    Column("stated", Json, nullable=False),
    Column("used_at", Double, nullable=False),  # When a shard was last queued
)

duties = Table(
    "duties",
    metadata,
    Column("name", Text, primary_key=True),
    Column("worker", PlainText, nullable=False),
    Column("until", Double, nullable=False),
)

fleets = Table(
    "fleets",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("engine", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("most", Integer, nullable=False),  # workers
    Column("running", Integer, nullable=False),
    Column("pending", Integer, nullable=False),
    Column(
        "reason", PlainText, nullable=False
    ),  # why the engine does not start workers that it was asked for
    Column("seen_at", Double, nullable=False),
    # Of the worker that started last since `code_since`, as in `workers`; empty while unknown.
    Column("identity", Identifier, nullable=False, server_default=""),
    Column("release", PlainText, nullable=False, server_default=""),
    Column("code_since", Double, nullable=False, server_default="0"),
    Column("ended", Boolean, nullable=False, server_default=false()),  # Its controller, as it said itself
)

cordons = Table(
    "cordons",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("drain", Boolean, nullable=False),
    Column("by_whom", PlainText, nullable=False),
    Column("since", Double, nullable=False),
)

identities = Table(
    "identities",
    metadata,
    # Digest of an identity, or name of a release (`contract.fleet.release.release_names`).
    Column("name", Identifier, primary_key=True),
    Column("verdict", Text, nullable=False),
    Column("by_whom", PlainText, nullable=False),
    Column("since", Double, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("labels", Text, primary_key=True),  # A JSON object with sorted keys, as text.
    Column("value", Double, nullable=False),
)

"""Alembic runs this file; the connection and its transaction are those of `service.store.upgrade`."""

from __future__ import annotations

from alembic import context

from assay.service import features
from assay.service.store import tables, tenant_tables  # noqa: F401 (they fill the metadata)
from assay.service.store.columns import metadata

features.modules("tables")  # they fill the metadata too
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite rolls schema changes back too, in the transaction that is already open.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

"""Run by alembic for each upgrade. The caller (``storage.database.schema``) hands over its open connection."""

from alembic import context
from sqlmodel import SQLModel

from storage.database import tables

assert tables  # noqa: S101  importing it fills the metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

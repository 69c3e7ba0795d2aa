"""Runs migrations on the connection that the service hands over."""

import sqlalchemy as sa
from alembic import context

from delvec_service.store.models import Base, SchemaCompatibilityRow


def _note_compatibility(connection: sa.Connection) -> None:
    """Keep the newest ``oldest_compatible`` that a migration up to the one reached declares."""
    reached = context.get_context().get_current_revision()
    if reached is None:
        return
    scripts = context.script.iterate_revisions(reached, "base")
    table = SchemaCompatibilityRow.__table__
    connection.execute(sa.delete(table))
    oldest = max(getattr(script.module, "oldest_compatible", "") for script in scripts)
    connection.execute(sa.insert(table).values(oldest=oldest))


_connection = context.config.attributes["connection"]
context.configure(connection=_connection, target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
    _note_compatibility(_connection)

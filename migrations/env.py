"""Alembic's entry: runs on the connection, and in the transaction, that the store hands over.

See `diode_engine.store.backends`: a migration is one transaction, so it is whole
or nothing. In SQLite foreign keys are off in it.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

"""Alembic's entry: runs on the connection, and in the transaction, that the store hands over.

See `diode_engine.store.database`: foreign keys are off there, and BEGIN IMMEDIATE makes a
migration whole or nothing.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

"""The types of the tables' columns: those of SQLite, and on PostgreSQL types that hold the same
values."""

from __future__ import annotations

import sqlalchemy as sa

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")  # sorted by code points
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")  # 64 bits
INTEGER = sa.Integer()  # on PostgreSQL 32 bits: ids, references and counts
LONG = sa.Integer().with_variant(sa.BigInteger(), "postgresql")  # 64 bits

"""The store of all results: SQLite by default, PostgreSQL by URL, memory for dry runs and tests.

Open a store with :func:`orchestrator.store.opening.open_store`. This package is the only one that
imports SQLAlchemy; importing it alone doesn't.
"""

from __future__ import annotations

from typing import Final

#: The name of a store that is gone with its process.
IN_MEMORY: Final = ":memory:"

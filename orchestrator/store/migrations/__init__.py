"""The schema's history, as Alembic revisions; run by orchestrator.store.migrating."""

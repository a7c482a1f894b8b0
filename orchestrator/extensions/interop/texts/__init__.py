"""Texts of unknown origin, split into runs that ``orchestrator.reading`` reads."""

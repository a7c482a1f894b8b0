"""A farm of many hosts: jobs on PostgreSQL, distributed and worked by Procrastinate."""

"""The queue of a farm of many hosts: Procrastinate's jobs and a few tables of our own, in the store's PostgreSQL."""

"""The use cases: what happens between a plan and stored runs.

Knows ports, records, planning and analysis only.
"""

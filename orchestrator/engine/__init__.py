"""The use cases: everything between a plan and stored runs.

Knows ports, records, planning and analysis only.
"""

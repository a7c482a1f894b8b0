"""Validates the files that people write: plans, device profiles, builds.

Every fault of a file is told at once.
"""

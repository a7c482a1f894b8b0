"""What people write, validated: plans, device profiles, builds.

Every fault of a file is told at once.
"""

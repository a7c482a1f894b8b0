"""The pass ``trace`` and the command of that name: runs, and apps, under a system tracer."""

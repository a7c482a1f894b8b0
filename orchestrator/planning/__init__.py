"""From a plan and the available devices to the measurements: selection, cases, skips, order, time
budget. Pure.
"""

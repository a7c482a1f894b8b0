"""From a plan and the devices that are there to what is measured: choice, cases, skips, order,
shares. Pure.
"""

"""What nightly runs add up to: series, changes and their causes, pages, numbers for Prometheus and
notifications.
"""

"""Reads the output and files of one process of a benchmark program as one run."""

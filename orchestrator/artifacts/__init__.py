"""Benchmark programs on this computer: looked inside, known by their content, found again."""

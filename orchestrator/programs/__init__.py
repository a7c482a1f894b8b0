"""The benchmark programs: how each is called and how its output is read."""

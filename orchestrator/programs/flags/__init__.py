"""The flags of the benchmark programs: what exists, what a case means, what is wrong."""

"""What the benchmark programs print and write: the grammar that they share."""

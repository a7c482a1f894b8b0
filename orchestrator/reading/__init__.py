"""What one process of a benchmark program printed and wrote, read as one run."""

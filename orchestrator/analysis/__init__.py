"""Numbers in, numbers and verdicts out: no I/O, no pandas."""

"""Fake binaries for the benchmark programs: what they would print, write and answer on this phone,
in their exact form.

They run no model. What they print is computed from the model's structure, the phone's profile and
the state of its hardware, by the rules of the real programs (command_line_flags, benchmark_model,
stats_calculator ...).
"""

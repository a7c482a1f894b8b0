"""Where the engine's work for several devices runs."""

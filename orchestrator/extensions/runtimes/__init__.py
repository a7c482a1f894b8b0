"""Programs of other runtimes: LiteRT-LM, and those that YAML files declare."""

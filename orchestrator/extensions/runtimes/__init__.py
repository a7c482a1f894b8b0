"""Programs of other runtimes: LiteRT-LM."""

"""``python -m benchfarm`` is the command ``benchfarm``."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()

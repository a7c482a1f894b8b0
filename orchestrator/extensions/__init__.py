"""What only some users need. The core names none of these packages but where it loads commands (cli) and pages."""

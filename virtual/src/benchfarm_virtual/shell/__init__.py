"""The phone's sh, interpreted in this process: parsing, expansion, execution."""

"""The phone's sh, interpreted in this process: scanning, grammar (tree-sitter-bash), expansion, execution."""

"""Tables: what a row is, its columns, and the six forms that they are written in."""

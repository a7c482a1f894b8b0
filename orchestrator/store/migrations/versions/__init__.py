"""One module per revision, named ``v<revision>_<title>``; a released one never changes."""

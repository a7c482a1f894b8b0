"""Results of other labs and programs, and evidence for them: importers and exporters."""

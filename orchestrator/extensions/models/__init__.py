"""Models to measure: facts and differences of files, built with TensorFlow, and downloads."""

"""Facts of .tflite files, references for their outputs, and the sample models."""

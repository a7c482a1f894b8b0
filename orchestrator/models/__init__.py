"""What a .tflite file holds, and building sample models."""

"""The pass ``energy``: what a case's inferences take, by the phone's own meters."""

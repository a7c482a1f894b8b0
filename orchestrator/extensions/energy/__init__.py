"""The pass ``energy``: the energy of a case's inferences, by the phone's own meters."""

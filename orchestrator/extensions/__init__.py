"""What only some users need: plugins that come with benchfarm, known to the core by their entry
points alone.
"""

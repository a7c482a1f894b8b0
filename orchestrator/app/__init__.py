"""The use cases, a module a verb: typed request in, typed result out.

Nothing here prints or exits.
"""

"""The messages of ``hstream.server.HStreamApi``, declared as classes: one module for each part of the service.

Only numbers and types of fields are on the wire. Names are those of the published definition in snake case, so their
JSON form is the published one. The package is our own: the official stubs may live in the same process.
"""

"""Framing: what stands around messages on a connection, in a packet or in a file.

A message of SBE does not carry its own length, so something else tells where it ends.

==================  ====================================================================================
`settings.Framing`  one way of framing, as data: where the length is, what it counts, what comes before
`known.FRAMINGS`    those of published feeds, by name
`cutter`            bytes in, whole messages out
`writer`            the reverse
==================  ====================================================================================

Nothing here opens a socket or a file, or knows a schema.
"""

"""Framing: the bytes around messages on a connection, in a packet or in a file.

An SBE message does not carry its own length; the framing tells where it ends.

=====================  ==============================================================================================
`settings.Framing`     one kind of framing, as data: where the length is, which bytes it counts, which headers precede
`framings.FRAMINGS`    the framings of published feeds, by name
`cutter`               bytes in, complete messages out
`writer`               the reverse
=====================  ==============================================================================================

Nothing here opens a socket or a file, or depends on a schema.
"""

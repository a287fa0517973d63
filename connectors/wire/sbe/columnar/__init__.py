"""Many SBE messages at once, to Arrow columns.

===============  ==================================================================================================
`decode`         messages → a table for each template, and what could not be read
`decode.arrow_schema`
`options`        what may be chosen: kinds of types, decimals, timestamps, what becomes of invalid text
===============  ==================================================================================================

Each message is read as `connectors.wire.sbe.decode` reads it, by its own acting version and block lengths. A walk steps
through all messages together (`walk`), noting where blocks, entries and data lie; columns are then gathered from the
bytes (`blocks` and the modules of each kind of value). Messages that lie about counts or lengths are set aside; what is
wrong with each is said by the decoder of single messages.
"""

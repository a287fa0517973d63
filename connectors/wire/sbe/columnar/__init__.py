"""Decodes many SBE messages at once to Arrow columns.

=======================  ==========================================================================================
`decode.decode_columns`  messages → a table for each template, and the errors of unreadable messages
`decode.arrow_schema`    the columns of a template, without any message
`decode.column_reader`   the same in parts of bounded size, for streams
`options`                options: column types, decimals, timestamps, handling of invalid text
=======================  ==========================================================================================

Each message is read as by `connectors.wire.sbe.codec.decode`, at its own acting version and block lengths. A walk steps
through all messages together (`walk`) and records the offsets of blocks, entries and data; columns are then gathered
from the bytes (`blocks`, and one module per kind of value). Messages with invalid counts or lengths are set aside; the
decoder of single messages reports their errors.

Absent and null are both NULL. An enum value without a name is its raw form as text. A null composite is a struct whose
first member is NULL, as in the JSON form; an absent one is NULL.
"""

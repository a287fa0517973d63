"""Files as tables of a source, and seeded changes to them.

=================  ==========================================================
`files`            Parquet and CSV files: columns, keys and rows
`values`           new values of each type, similar to those that are there
`changer`          one update after another: inserts, updates, deletes, moves
=================  ==========================================================
"""

"""The source of change feeds: tables that change, their history, and subscriptions to them.

=================  ==============================================================================
`tables`           one table: rows, numbered updates, history, snapshots
`source`           subscriptions of one connection, acknowledgements, errors; no socket, no clock
`faults`           packets lost, repeated and reordered on request
=================  ==============================================================================
"""

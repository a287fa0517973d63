"""The change feed in tengi's packets: our own protocol. Column types, packets, and the order in which they land.

===========  =======================================================================
`columns`    values of Spark's types as tengi values, and back
`packets`    each packet as a typed value, and back
`heading`    the few fields that a receiver reads before it lands a packet
`order`      restores the order of a table's changes, without a clock
===========  =======================================================================
"""

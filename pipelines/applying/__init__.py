"""Applies one cut to one silver table: read → decode → fold → check → write → record.

======================  ===============================================================================================
`applying.target`       the table, and whether it was built under the settings it has now
`applying.job`          what a cut has to work with: the table, those beside it, and how they are before the cut
`applying.fold`         its changes, one net change per key, and the rows that are at those keys
`applying.statistics`   what is counted on the way
`applying.check`        the rows the cut comes to; whatever can refuse it is known here, before anything is written
`applying.write`        the commits, the table's own last: it carries the position, and makes the others count
======================  ===============================================================================================

Each step takes the frozen result of the one before. How a cut is applied depends on the table's settings and on what
is aside, never on what its data happen to be:

================================================  ============================================================
the cut begins with a snapshot                    it replaces; nothing before it is looked at
rules, rows aside, or ``keys`` of a positional    rows at the cut's keys are read whole, completed and judged,
source                                            and written whole
a decoder that does not fold                      rows at the cut's keys are looked up, not read whole; MERGE
                                                  completes them
a decoder that folds                              MERGE completes them
================================================  ============================================================

Key moves are followed where a cut has any, whatever the way.
"""

"""Apply one cut to one silver table: read → decode → fold → check → write → record.

===========================  ==========================================================================================
`applying.silver`            the table, and whether it was built under its current settings
`applying.build`             steps: plans and applies a cut, records it, and decides how one that failed is retried
`applying.cut_job`           the cut to be applied: its frames, and their statistics
`applying.apply_cut`         the line itself
`applying.table_settings`    Delta's own settings of the table: deletion vectors, change data feed, clustering
`applying.registration`      names in a catalog, and comments
`applying.roll_back`         undoes writes to the companion tables that no commit of the silver table references
`applying.decode`            the cut's changes; the table and its companion tables before the cut
`applying.fold_cut`          one net change per key, and the existing rows at those keys
`applying.fold_statistics`   counts taken from the folded changes
`applying.check`             the rows that result; every reason to refuse the cut is found here, before any write
`applying.write`             the commits; the silver table's comes last, carries the position and validates the others
===========================  ==========================================================================================

Each step takes the frozen result of the one before. The table's settings and the rows in the side table decide how a
cut is applied; the values in its data do not:

================================================  ============================================================
the cut begins with a snapshot                    it replaces the table; earlier rows are not read
rules, rows in the side table, or ``keys`` of a   complete rows at the cut's keys are read, completed, checked
positional source                                 against the rules, and written in full
a decoder that does not fold                      rows at the cut's keys are looked up without their columns;
                                                  MERGE completes them
a decoder that folds                              MERGE completes them
================================================  ============================================================

Key moves are followed in every case.
"""

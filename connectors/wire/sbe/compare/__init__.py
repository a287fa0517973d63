"""Effects of a change to an SBE schema on readers and writers of both versions.

=====================  ======================================================================================
`schemas.compare`      two schemas → a `findings.Comparison`: the differences, and what each side would see
`rules.RULES`          every rule: its title, its severity in each direction, what readers see
=====================  ======================================================================================

*Backward*: a reader of the new schema receives messages written with the old one. *Forward* is the reverse. Messages of
*counted* schemas carry the numbers of their groups and data, those of *classic* schemas do not.
"""

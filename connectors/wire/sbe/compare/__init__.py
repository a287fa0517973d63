"""What a change of an SBE schema does to those who read and write with the two.

=====================  ======================================================================================
`schemas.compare`      two schemas → a `findings.Comparison`: what differs, and what each side would see of it
`rules.RULES`          every rule: what it says, how bad it is in each direction, what readers see
=====================  ======================================================================================

*Backward* is: a reader of the new schema meets messages written with the old one. *Forward* is the reverse. *Classic*
schemas do not say on the wire how many groups and data there are, *counted* ones do.
"""

"""The rules of schema evolution as a table: title, severities, and what a reader sees.

Severities are written as backward and forward: ``B`` breaking, ``W`` warning, ``I`` information, ``-`` none. A second
pair applies to counted messages, if they differ. A rule with several cases has one row for each, with the case after
its number. What readers see is a template: ``{name}``, ``{old}``, ``{new}`` and further values of the finding.

The constraints behind the rules are those of SBE 1.0, chapter 5 (message schema extension).
"""

from __future__ import annotations

from typing import NamedTuple

from silverfold.connectors.wire.sbe.compare.findings import Kind, Profile, Severity

_SEVERITIES = {
    "-": Severity.NONE,
    "I": Severity.INFORMATION,
    "W": Severity.WARNING,
    "B": Severity.BREAKING,
}


class Rule(NamedTuple):
    """One row of the table."""

    severities: str
    kind: Kind
    title: str
    sees: str
    touches_wire: bool = True

    def severity(self, profile: Profile) -> tuple[Severity, Severity]:
        """Return the severities backward and forward."""
        classic, *counted = self.severities.split()
        pair = counted[0] if counted and profile == "counted" else classic
        return _SEVERITIES[pair[0]], _SEVERITIES[pair[1]]


def _text_rule(severities: str, kind: str, title: str, sees: str) -> Rule:
    """Return a rule about documentation: the bytes and their meaning are unchanged."""
    return Rule(severities, Kind(kind), title, sees, touches_wire=False)


def _rule(severities: str, kind: str, title: str, sees: str) -> Rule:
    return Rule(severities, Kind(kind), title, sees)


_ABSENT = "New readers report {name} absent in messages before version {since}"
_UNTOUCHED = "Nothing on the wire changes"
_SKIPPED = "Old readers pass over it: counts tell them that it is there."
_TAKEN_FOR_GROUP = "Old readers take its dimensions and entries for those of the group that they know there."
_TAKEN_FOR_DATA = "Old readers take its bytes for those of the data that they know there."
_LOST = "take what follows for something else"

RULES: dict[str, Rule] = {
    "R1": _rule("BB", "L", "schema id differs",
        "Each side refuses the messages of the other: their schema id is not its own."),
    "R2": _text_rule("WW", "R", "package differs", f"{_UNTOUCHED}; code made from the two lies in different packages."),
    "R3": _rule("BB", "L", "byte order differs",
        "Every number of more than one byte is read backwards, those of the header first."),
    "R4": _rule("BB", "L", "message header differs",
        "Readers find block length, template, schema id or version at the wrong place, or the root block does."),
    "R4/name": _text_rule("II", "-", "message header renamed", f"{_UNTOUCHED}."),
    "R5": _rule("BB", "L", "version decreased",
        "Old readers take new messages for older ones and leave out what these do have; versions no longer "
        "tell which is newer."),
    "R6": _rule("BB", "L", "version not raised",
        "Readers cannot tell from its version which of the two layouts a message has."),
    "R7": _text_rule("WW", "R", "version not raised, descriptions differ",
        "Messages are read alike; the same version stands for two different files."),
    "R8": _text_rule("II", "-", "version raised, nothing else changed", "Messages are read alike."),
    "R10": _rule("-I", "-", "message added", "Old readers meet an unknown template and pass over it."),
    "R10/unframed": _rule("-B", "-", "message added, messages not framed",
        "Old readers cannot tell where the unknown message ends and lose all that follows."),
    "R11": _rule("W-", "R", "new message lacks its version",
        "New readers believe that messages from before version {version} could be of this template."),
    "R12": _rule("BI", "L", "message removed",
        "New readers refuse {name} as an unknown template, also where it has landed already."),
    "R12/deprecated": _rule("WI", "L", "deprecated message removed",
        "New readers refuse {name} as an unknown template where it was kept, or is still sent."),
    "R13": _rule("BB", "L", "template id changed", "Each side takes the other's {name} for an unknown template."),
    "R14": _rule("BB", "L", "template id reused",
        "Each side reads the other's message by its own layout; the first that breaks is {first}."),
    "R14/alike": _rule("BB", "M", "template id reused",
        "By its version {name} is a new message: what one side sends as one message, the other reads as another."),
    "R15": _text_rule("II", "-", "message renamed", f"{_UNTOUCHED}; users meet another name."),
    "R15/taken": _rule("BB", "M", "template id carries another message's name",
        "What one side sends as one message, the other reads as another."),
    "R16": _text_rule("W-", "R", "version of a message changed",
        "New readers that check it take messages between the two versions for impossible, or no longer do."),
    "R20": _rule("--", "-", "field added at the end", _ABSENT + "; old readers skip its bytes."),
    "R21": _rule("B-", "L", "new field lacks its version",
        "New readers take bytes of the next part, or padding, for {name} in messages of version {version}."),
    "R22": _rule("W-", "R", "field added in padding at the end",
        _ABSENT + "; readers that mind no versions find what old writers left in the padding."),
    "R23": _rule("WW", "R", "field added between others",
        _ABSENT + "; readers that mind no versions find what stood there before."),
    "R24": _rule("BB", "L", "field moved",
        "Both sides read {name} at the wrong place, and all that moved with it: {cause}."),
    "R25": _rule("BB", "L", "field removed",
        "Old readers take other bytes for {name}, or miss it; new readers no longer get what old messages hold."),
    "R26/added": _rule("II", "M", "constant field added", "It takes no bytes; old readers do not show it."),
    "R26/removed": _rule("WW", "M", "constant field removed", "It takes no bytes; new readers no longer show it."),
    "R27": _rule("BB", "L", "type of a field changed",
        "Both sides read the bytes of {name} as another type than they were written as."),
    "R28": _rule("BB", "L", "constant and wire field exchanged",
        "One side reads bytes for {name} that the other does not write."),
    "R29": _rule("-W", "M", "required became optional", "Old readers take the null of {name} for a value."),
    "R30": _rule("W-", "M", "optional became required",
        "New readers meet the null of {name} in old messages, where they expect a value."),
    "R31": _rule("BB", "M", "null value changed",
        "Each side takes the other's null for a value, and a value for null."),
    "R31/added": _rule("B-", "M", "value became the null value", "New readers take a value of old messages for null."),
    "R31/removed": _rule("-B", "M", "null value became a value", "Old readers take a value of new messages for null."),
    "R31/added-nan": _rule("W-", "M", "NaN became the null value", "New readers take NaN in old messages for null."),
    "R31/removed-nan": _rule("-W", "M", "NaN became a value", "Old readers take NaN in new messages for null."),
    "R32": _rule("BB", "M", "constant value changed",
        "Messages of both look alike; each side shows its own {name} for them."),
    "R33": _rule("BB", "M", "epoch or unit of time changed", "Each side reads the other's numbers as other times."),
    "R34": _rule("BB", "M", "character encoding changed",
        "Each side reads the other's text with the wrong characters, or not at all."),
    "R34/widened": _rule("-W", "M", "character encoding widened",
        "Old readers fail on, or replace, characters beyond ASCII."),
    "R34/narrowed": _rule("W-", "M", "character encoding narrowed",
        "New readers fail on, or replace, characters beyond ASCII in old messages."),
    "R35": _rule("W-", "M", "range narrowed", "New readers that check ranges meet old values outside of it."),
    "R36": _rule("-W", "M", "range widened", "Old readers that check ranges meet new values outside of it."),
    "R37": _rule("BB", "L", "field moved to another block",
        "Each side looks for {name} where the other does not write it."),
    "R38": _rule("BB", "M", "fields exchanged their names",
        "Each side shows the value of one under the name of the other."),
    "R39": _text_rule("II", "-", "field renamed or renumbered",
        f"{_UNTOUCHED}; if the name stands for another meaning, no checker can see it."),
    "R40": _text_rule("II", "-", "description or semantic type changed", f"{_UNTOUCHED}."),
    "R41": _text_rule("II", "-", "type renamed", f"{_UNTOUCHED}: the encodings are equal."),
    "R41/constant": _text_rule("II", "-", "type of a constant changed",
        "It takes no bytes; {name} is a value of another type to each side's users."),
    "R45": _rule("BB", "R", "block became shorter",
        "Readers that go by their own block length instead of that on the wire lose their place."),
    "R46": _rule("WW", "R", "block became longer",
        "The added bytes are padding; readers that go by their own block length lose their place."),
    "R50": _rule("--", "-", "group added at the end", _ABSENT + "; old readers leave it over at the end."),
    "R50/unframed": _rule("-B", "-", "group added at the end, messages not framed",
        "Old readers take its dimensions for the header of the next message."),
    "R50/unskippable": _rule("-B", "L", "group added at the end, laid out unlike others",
        "Old readers count it, read it as groups of their own are laid out, and refuse the message."),
    "R50/replaced": _rule("-B", "L", "group added where another was removed", _TAKEN_FOR_GROUP),
    "R51": _rule("-B", "L", "group added before data",
        "Old readers take its dimensions for the length of the data that follows."),
    "R51/counted": _rule("--", "-", "group added before data", _SKIPPED),
    "R51/unskippable": _rule("-B", "L", "group added before data, not to be skipped",
        "Old readers count it but cannot tell how it is laid out, and do not reach the data behind it."),
    "R51/replaced": _rule("-B", "L", "group added where another was removed", _TAKEN_FOR_GROUP),
    "R52": _rule("B- W-", "L", "new group lacks its version",
        "New readers of version {version} messages look for the dimensions of {name}, which only a count "
        "tells them are not there."),
    "R52/inserted": _rule("B-", "L", "new group lacks its version",
        "New readers of version {version} messages take the next part for the dimensions of {name}."),
    "R53": _rule("WB", "L", "group inserted before another",
        "Old readers take its dimensions and entries for those of the group behind it."),
    "R54": _rule("-B", "L", "group added inside entries",
        "Old readers lose their place at the end of the first entry."),
    "R54/counted": _rule("--", "-", "group added inside entries", _SKIPPED),
    "R54/unskippable": _rule("-B", "L", "group added inside entries, not to be skipped",
        "Old readers count it but cannot tell how it is laid out, and lose their place at the end of the first entry."),
    "R54/replaced": _rule("-B", "L", "group added where another was removed", _TAKEN_FOR_GROUP),
    "R55": _rule("BB", "L", "group removed", f"Both sides lose their place where {{name}} was, and {_LOST}."),
    "R55/unskippable": _rule("BB BW", "L", "last group removed, not to be skipped",
        "New readers count {name} in old messages but cannot tell how it is laid out, and lose their place; "
        "to old readers it is missing."),
    "R55/last": _rule("BB WW", "L", "last group removed",
        "Without counts both sides lose their place; with them, {name} is missing to old readers and skipped "
        "by new ones."),
    "R55/replaced": _rule("BB WB", "L", "last group replaced",
        "Without counts both sides lose their place; with them, new readers skip {name} in old messages, and old "
        "ones take what replaced it for {name}."),
    "R56": _rule("BB", "L", "order of groups changed",
        "Each side takes the entries of one group for those of another."),
    "R57": _rule("BB", "L", "group dimensions differ",
        "Both sides read block length and number of entries of {name} wrong, and lose their place."),
    "R58": _text_rule("II", "-", "group dimensions renamed", f"{_UNTOUCHED}: the layouts are equal."),
    "R59/narrowed": _rule("W-", "M", "number of entries narrowed",
        "New readers refuse old messages whose number of entries is outside of it."),
    "R59/widened": _rule("-W", "M", "number of entries widened",
        "Old readers refuse new messages whose number of entries is outside of it."),
    "R60": _text_rule("II", "-", "group renamed or renumbered", f"{_UNTOUCHED}."),
    "R65": _rule("--", "-", "data added at the end", _ABSENT + "; old readers leave it over at the end."),
    "R65/unframed": _rule("-B", "-", "data added at the end, messages not framed",
        "Old readers take its length for the header of the next message."),
    "R65/unskippable": _rule("-B", "L", "data added at the end, laid out unlike others",
        "Old readers count it, read it as data of their own are laid out, and refuse the message."),
    "R65/replaced": _rule("-B", "L", "data added where other data was removed", _TAKEN_FOR_DATA),
    "R66": _rule("-B", "L", "data added inside entries",
        "Old readers lose their place at the end of the first entry."),
    "R66/counted": _rule("--", "-", "data added inside entries", _SKIPPED),
    "R66/unskippable": _rule("-B", "L", "data added inside entries, not to be skipped",
        "Old readers count it but cannot tell how it is laid out, and lose their place at the end of the first entry."),
    "R66/replaced": _rule("-B", "L", "data added where other data was removed", _TAKEN_FOR_DATA),
    "R67": _rule("B- W-", "L", "new data lacks its version",
        "New readers of version {version} messages look for the length of {name}, which only a count tells "
        "them is not there."),
    "R67/inserted": _rule("B-", "L", "new data lacks its version",
        "New readers of version {version} messages take the next part for the length of {name}."),
    "R68": _rule("WB", "L", "data inserted before other data",
        "Old readers take its bytes for those of the data behind it."),
    "R69": _rule("BB", "L", "data removed", f"Both sides lose their place where {{name}} was, and {_LOST}."),
    "R69/unskippable": _rule("BB BW", "L", "last data removed, not to be skipped",
        "New readers count {name} in old messages but cannot tell how it is laid out, and lose their place; "
        "to old readers it is missing."),
    "R69/last": _rule("BB WW", "L", "last data removed",
        "Without counts both sides lose their place; with them, {name} is missing to old readers and skipped "
        "by new ones."),
    "R69/replaced": _rule("BB WB", "L", "last data replaced",
        "Without counts both sides lose their place; with them, new readers skip {name} in old messages, and old "
        "ones take what replaced it for {name}."),
    "R70": _rule("BB", "L", "order of data changed", "Each side takes the bytes of one for those of another."),
    "R71": _rule("BB", "L", "length of data differs",
        "Both sides read the length of {name} wrong, and lose their place."),
    "R72": _rule("BB", "M", "character encoding of data changed",
        "Each side reads the other's text with the wrong characters, or not at all."),
    "R72/widened": _rule("-W", "M", "character encoding of data widened",
        "Old readers fail on, or replace, characters beyond ASCII."),
    "R72/narrowed": _rule("W-", "M", "character encoding of data narrowed",
        "New readers fail on, or replace, characters beyond ASCII in old messages."),
    "R72/plain": _rule("WW", "M", "data is text for one side only",
        "One side shows the bytes of {name} as text, the other as bytes."),
    "R73/narrowed": _rule("W-", "M", "length of data narrowed",
        "New readers refuse old messages whose {name} is outside of it."),
    "R73/widened": _rule("-W", "M", "length of data widened",
        "Old readers refuse new messages whose {name} is outside of it."),
    "R74": _text_rule("II", "-", "data renamed or renumbered", f"{_UNTOUCHED}."),
    "R80": _rule("BB", "L", "enum written as another primitive",
        "Both sides read the bytes as another type than they were written as."),
    "R81": _rule("-W", "M", "enum value added", "Old readers meet {new} as an unknown value."),
    "R82": _rule("W-", "R", "new enum value lacks its version",
        "New readers cannot tell that messages before the new version do not hold it."),
    "R83": _rule("BI", "M", "enum value removed", "New readers meet {old} in old messages as an unknown value."),
    "R83/deprecated": _rule("WI", "M", "deprecated enum value removed",
        "New readers meet {old} as an unknown value where it was kept, or is still sent."),
    "R84": _rule("BB", "M", "enum value changed its number",
        "Each side takes the other's {name} for another value, or for none."),
    "R85": _rule("WW", "M", "enum value renamed",
        "Each side shows its own name; if the new one stands for another meaning, no checker can see it."),
    "R86": _rule("BB", "M", "enum number carries another value's name",
        "What one side writes as one value, the other reads as another."),
    "R87": _rule("BB", "M", "null of an enum changed", "Each side takes the other's null for an unknown value."),
    "R88": _rule("BB", "L", "set written as another primitive",
        "Both sides read more or fewer bytes than were written."),
    "R89": _rule("-W", "M", "choice added", "Old readers meet an unknown bit."),
    "R89/unversioned": _rule("WW", "M", "choice added without its version",
        "Old readers meet an unknown bit; new ones cannot tell that older messages do not hold it."),
    "R90": _rule("BI", "M", "choice removed", "New readers meet {name} in old messages as an unknown bit."),
    "R90/deprecated": _rule("WI", "M", "deprecated choice removed",
        "New readers meet {name} as an unknown bit where it was kept, or is still sent."),
    "R91": _rule("BB", "M", "choice changed its bit",
        "Each side takes the other's {name} for another choice, or for none."),
    "R92": _rule("WW", "M", "choice renamed",
        "Each side shows its own name; if the new one stands for another meaning, no checker can see it."),
    "R92/reused": _rule("BB", "M", "bit given to another choice",
        "What one side writes as one choice, the other reads as another."),
    "R93": _rule("BB", "L", "layout of a composite changed",
        "Both sides read members at the wrong place or as the wrong type."),
    "R94": _rule("WW", "R", "member added in padding",
        "Old readers skip it; new readers that mind no versions find what old writers left in the padding."),
    "R94/unversioned": _rule("BW", "R", "member added in padding without its version",
        "New readers take padding for {name} in messages of version {version}."),
    "R95/added": _rule("II", "M", "constant member added", "It takes no bytes; old readers do not show it."),
    "R95/removed": _rule("WW", "M", "constant member removed", "It takes no bytes; new readers no longer show it."),
    "R96": _text_rule("II", "-", "member renamed or defined elsewhere", f"{_UNTOUCHED}."),
    "R97": _text_rule("II", "-", "unused encoding changed", "No message uses it."),
    "R100": _rule("B-", "L", "version of an element raised",
        "New readers report {name} absent in messages of version {version}, which do carry it."),
    "R101": _rule("W-", "R", "version of an element changed",
        "Messages with versions between {old} and {new} are read differently."),
    "R102": _text_rule("W-", "R", "versions not in order",
        "{name} is newer than what stands behind it, so it was not added at the end."),
    "R103": _text_rule("II", "-", "deprecated", "Writers are about to stop sending it."),
    "R104": _text_rule("WW", "R", "deprecation changed", "Users were told otherwise before."),
    "R105": _text_rule("W-", "R", "deprecated before it exists", "The two versions contradict each other."),
}  # fmt: skip

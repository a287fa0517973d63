"""Simple Binary Encoding, driven by the schema: read XML, decode, encode.

=======================  ====================================================================================
`load_schema`            XML → `schema.model.Schema`, a tree of layouts; all mistakes of the file in one error
`decode`                 one complete message → values by name, limited by its version and block lengths
`encode`                 values by name → one complete message, in the schema's version or an older one
`read_header`            the header alone: block length, template, schema, version
`codec.walk`             locations of a group's entries and of data: for readers that build no values
`columnar.decode`        many complete messages → Arrow tables, one for each template
`codec.value_checks`     oddities of decoded values
`compare.schemas`        what readers and writers of another version of a schema see
=======================  ====================================================================================

Readers and writers are compiled on first use and cached in ``Schema.plans``, so use one Schema object per process.
"""

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.header import read_header
from silverfold.connectors.wire.sbe.schema.load import load_schema

__all__ = ["decode", "encode", "load_schema", "read_header"]

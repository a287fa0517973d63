"""Simple Binary Encoding, driven by the schema: read XML, decode, encode.

=====================  ======================================================================================
`schema.load_schema`   XML → `model.Schema`, a tree of layouts; all mistakes of the file in one error
`decode.decode`        one complete message → values by name, limited by its version and block lengths
`encode.encode`        values by name → one complete message, in the schema's version or an older one
`header.read_header`   the header alone: block length, template, schema, version
`walk`                 groups as numpy columns, data as spans: for readers that build no values
`columnar`             many complete messages → Arrow tables, one for each template
`value_checks`         oddities of decoded values
=====================  ======================================================================================

Readers and writers are compiled on first use and cached in ``Schema.plans``, so use one Schema object per process.
"""

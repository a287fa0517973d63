"""Simple Binary Encoding, driven by the schema: read XML, decode, encode.

=====================  ======================================================================================
`schema.load_schema`   XML → `model.Schema`, a tree of layouts; everything wrong with the file in one error
`decode.decode`        one whole message → values by name, as far as its version and block lengths reach
`encode.encode`        values by name → one whole message, as the schema's version or an older one
`header.read_header`   the header alone: block length, template, schema, version
`walk`                 groups as numpy columns, data as spans: for readers that build no values
`columnar`             many whole messages → Arrow tables, one for each template
`review`               what is odd about decoded values
=====================  ======================================================================================

What readers and writers compile is kept with the schema (``Schema.plans``), so use one Schema object per process.
"""

"""The Deephaven SBE table transport: client, server, receiver and decoder."""

"""An HTTP listener whose accepted posts land in bronze."""

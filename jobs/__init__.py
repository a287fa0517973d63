"""The commands: one file per job, each also ``python -m jobs.<name>``; `jobs.cli` mounts them all."""

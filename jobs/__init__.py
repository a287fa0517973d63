"""The commands: one file per job, each also ``python -m silverfold.jobs.<name>``; `jobs.cli` mounts them all."""

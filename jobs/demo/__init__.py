"""The demo: a live source, receiver, build, and a proof."""

"""A table server that speaks the protocol, over tables held in memory."""

"""Silver compared with what bronze, or the source, says it must hold."""

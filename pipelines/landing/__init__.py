"""Bronze: frames from receivers, written in order by one writer."""

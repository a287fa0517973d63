"""Sessions: started with their JARs, on this machine or a cluster."""

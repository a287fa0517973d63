"""What `silverfold.testing` is made of: comparing silver, recorded feeds, simulated feeds, pytest's plugin."""

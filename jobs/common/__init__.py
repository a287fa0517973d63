"""What the commands share: settings, logs, console, signals."""

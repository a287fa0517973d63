"""Single messages: decoded, encoded, walked through and checked."""

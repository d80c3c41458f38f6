"""One thin file per command: options, one call, one render."""

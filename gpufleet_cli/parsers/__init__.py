"""What the evidence says: one module per file format. The registry is `parsers.registry`, apart from
this file, so that a worker process that reads dumps does not import every other format."""

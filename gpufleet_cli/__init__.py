"""gpufleet: which rank stopped this training job, what is under it, and what to do about it."""

__version__ = "0.1.0"

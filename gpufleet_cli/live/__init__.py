"""The live cluster: find a job, gather what it left, write that as a bundle. Judges nothing."""

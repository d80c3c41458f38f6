"""Made incidents with a known truth: a training job, at most two faults, and what they leave behind.

`world.make` is the whole of it: seed, class, size and corruption to files and `Truth`. It goes
`layout` (who talks to whom) > `programs` (what each rank does in a step) > `engine` (when it
happens) > `faults` (what goes wrong) > `teardown` (who notices, who dies) > `story.Story`, and
from the story writers make files: `dump_files`, `log_files`, `kernel_files`, `cluster_files`.
`told` says what those files can tell, and nothing here uses the code that triages.
"""

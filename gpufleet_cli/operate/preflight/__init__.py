"""Will the next incident of this job be diagnosable and survivable? Manifests or live objects to findings.

`documents` reads, `build` makes one `model.Spec` a workload of any kind, `registry` has the rules by theme,
`check` runs them, silences and sorts.
"""

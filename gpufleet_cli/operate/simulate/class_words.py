"""What each class of incident is, in one sentence that stands behind its name."""

from __future__ import annotations

from gpufleet_cli.operate.simulate.story import Class

WORDS: dict[Class, str] = {
    Class.LOADER_STALL: "the data loader of one rank never hands out a batch",
    Class.GC_STALL: "one rank's Python is stuck in a garbage collection",
    Class.CHECKPOINT_STALL: "one rank never comes back from saving a checkpoint",
    Class.LOCK_STALL: "one rank's interpreter lock is held, its watchdog deaf",
    Class.PYTHON_CRASH: "one rank ends with a Python exception",
    Class.SEGFAULT: "one rank ends with a segmentation fault",
    Class.OOM_KILL: "the kernel kills one rank: its host is out of memory",
    Class.GPU_STALL: "a kernel of one GPU never ends, and nothing is logged",
    Class.XID_79: "a GPU falls off the bus",
    Class.XID_119: "the firmware processor (GSP) of a GPU stops answering",
    Class.XID_48: "an uncorrectable memory error of a GPU",
    Class.XID_94: "an uncorrectable memory error of a GPU, contained",
    Class.XID_95: "an uncorrectable memory error of a GPU, not contained",
    Class.NODE_DEATH: "a node dies at once, with all its ranks",
    Class.NIC_DOWN: "the network adapter of one rank goes down",
    Class.RAIL_FLAP: "an adapter's link goes down and up again, too late",
    Class.LINK_IN_FLIGHT: "an operation hangs in flight between two ranks",
    Class.PARTIAL: "an operation ends for a part of its ring only",
    Class.SWITCH: "a switch takes the links of several nodes down",
    Class.SKIPPED: "one rank leaves out a collective that its peers call",
    Class.REORDERED: "one rank calls two collectives in the wrong order",
    Class.MISMATCH: "one rank calls a collective with another size or type",
    Class.P2P_DEADLOCK: "two pipeline stages both send before they receive",
    Class.STORAGE: "the checkpoint storage hangs for most ranks",
    Class.RENDEZVOUS: "a pod never comes up, and the others wait to begin",
    Class.SLOW_GPU: "one GPU is slow, and everybody with it; the job runs",
    Class.SLOW_LINK: "one link is slow, and everybody with it; the job runs",
    Class.IMBALANCE: "in each step another rank has more to do; the job runs",
    Class.TWO_FAULTS: "two ranks stop in one step, each for its own reason",
    Class.RED_HERRING: "a fault, and something that looks bad beside it",
    Class.LONG_STEP: "one long step, and nothing is wrong",
    Class.COMPILE: "a compilation, and nothing is wrong",
    Class.CHECKPOINT: "a long checkpoint, and nothing is wrong",
    Class.OTHER_JOB: "a fault, and what an earlier job left beside it",
}

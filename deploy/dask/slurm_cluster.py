"""A Dask cluster of Slurm jobs for `gpufleet triage PLACE --scheduler`: needs `pip install dask-jobqueue`.

    python deploy/dask/slurm_cluster.py --workers 64 --partition cpu

Prints the scheduler's address and stands until Enter or Ctrl-C. Run it where compute nodes can reach it, from the
environment that has gpufleet: the workers' jobs use the same one by its path. AWS_* variables go along.
"""

from __future__ import annotations

import argparse

from dask_jobqueue import SLURMCluster


def main() -> None:
    """Start it, say where it is, end it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--partition", required=True)
    parser.add_argument("--account")
    parser.add_argument("--walltime", default="00:30:00")
    options = parser.parse_args()
    cluster = SLURMCluster(
        queue=options.partition,
        account=options.account,
        cores=1,  # threads of the worker: one shard at a time
        processes=1,
        job_cpu=2,  # its dumps are read by processes beside it
        memory="6GB",
        walltime=options.walltime,
        local_directory="$TMPDIR",
        worker_extra_args=["--memory-limit", "0"],
    )
    try:
        cluster.scale(jobs=options.workers)
        print(f"gpufleet triage PLACE --scheduler {cluster.scheduler_address}", flush=True)
        input("Enter ends it. ")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()

"""What the kernel itself writes of the host: memory, crashes, storage, network, the end of a node.

Wordings are those of Linux 5.15 to 6.8, of mlx5 and of Lustre's client.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import gathered, identities
from gpufleet_cli.operate.simulate.kernel_gpu import Line
from gpufleet_cli.operate.simulate.log_endings import LOADER_PID, kills_loader
from gpufleet_cli.operate.simulate.story import Fault, Story
from gpufleet_cli.verdict import Kind

NICS = ("18", "3c", "4d", "5e", "9a", "ba", "cc", "dc")


# --- Processes --------------------------------------------------------------------------------------


def victim(story: Story) -> str:
    """What the kernel calls the process of a rank."""
    return gathered.draw(story, "victim").choice(("python", "python3", "pt_main_thread"))


def oom(story: Story, index: int, pid: int, *, name: str) -> list[str]:
    """The report of one kill: by the pod's limit where the job runs in pods, else by the machine's."""
    rng = gathered.draw(story, f"oom/{pid}")
    size = rng.randrange(300_000_000, 900_000_000)
    sizes = f"total-vm:{size + 230_000_000}kB, anon-rss:{size}kB, file-rss:311220kB, shmem-rss:18874368kB"
    owner = "UID:0 pgtables:912004kB oom_score_adj:"
    asked = f"{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj="
    if gathered.is_in_pods(story):
        uid = identities.pod_uid(story, index).replace("-", "_")
        scope = f"cri-containerd-{gathered.container_id(story, index)}.scope"
        group = f"/kubepods.slice/kubepods-pod{uid}.slice"
        return [
            f"{asked}-997",
            f"memory: usage {size + 40_000}kB, limit {size + 40_000}kB, failcnt {rng.randrange(99_999)}",
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={scope},mems_allowed=0-1,"
            f"oom_memcg={group},task_memcg={group}/{scope},task={name},pid={pid},uid=0",
            f"Memory cgroup out of memory: Killed process {pid} ({name}) {sizes}, {owner}-997",
        ]
    group = f"/system.slice/slurmstepd.scope/job_{4000 + story.seed % 5000}/step_0/user/task_0"
    return [
        f"{asked}0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
        f"task_memcg={group},task={name},pid={pid},uid=1007",
        f"Out of memory: Killed process {pid} ({name}) {sizes}, {owner}0",
    ]


def killed(story: Story, fault: Fault, index: int, rng: Random) -> Iterator[Line]:
    """The rank's process, or a worker of its data loader, is killed; sometimes another just before."""
    rank = fault.ranks[0]
    pid = gathered.host_pid(story, rank)
    name = victim(story)
    if kills_loader(story, story.endings[rank]):
        pid, name = pid + LOADER_PID, rng.choice(("python", "pt_data_worker"))
    victims = [(0.0, pid, name)]
    if rng.random() < 0.25:
        victims.insert(0, (-0.4, pid + 41, rng.choice(("python", "pt_data_worker"))))
    for after_s, process, word in victims:
        for text in oom(story, index, process, name=word):
            names = (Kind.HOST_OOM,) if "oom-kill:" in text or "Killed" in text else ()
            yield Line(at_s=fault.at_s + after_s, text=text, names=names)
    reaped = "now anon-rss:0kB, file-rss:0kB, shmem-rss:18874368kB"
    yield Line(at_s=fault.at_s + 0.9, text=f"oom_reaper: reaped process {pid} ({name}), {reaped}")


def others_killed(story: Story, decoy: Fault, index: int, rng: Random) -> Iterator[Line]:
    """Another job's process, in another pod, long before."""
    pid = gathered.FIRST_HOST_PID - 1 - rng.randrange(400_000)
    for text in oom(story, index, pid, name="java"):
        text = text.replace(
            identities.pod_uid(story, index).replace("-", "_"),
            identities.pod_uid(story, 1_000_000 + index).replace("-", "_"),
        ).replace(gathered.container_id(story, index), gathered.container_id(story, 1_000_000))
        yield Line(at_s=decoy.at_s, text=text.replace("job_", "job_9"))


def segfault(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    pid = gathered.host_pid(story, fault.ranks[0])
    where = rng.choice(
        ("libcuda.so.550.90.07", "libtorch_cuda.so", "libnccl.so.2.21.5", "libc10_cuda.so")
    )
    base = 0x7F0000000000 + (rng.randrange(1 << 27) << 12)
    ip, sp = base + rng.randrange(1 << 24), 0x7FFC00000000 + rng.randrange(1 << 28)
    image = f"{where}[{base:x}+{rng.randrange(1 << 20, 1 << 27):x}]"
    if rng.random() < 0.75:
        text = f"python3[{pid}]: segfault at {rng.randrange(4096):x} ip {ip:016x} sp {sp:016x} error 4 in {image}"
    else:
        text = (
            f"traps: python3[{pid}] general protection fault ip:{ip:x} sp:{sp:x} error:0 in {image}"
        )
    yield Line(at_s=fault.at_s, text=text, names=(Kind.RANK_CRASHED,))
    code = " ".join(f"{rng.randrange(256):02x}" for _ in range(16))
    yield Line(at_s=fault.at_s, text=f"Code: {code} <48> 8b 07 48 8b 40 10 c3")


# --- Storage ----------------------------------------------------------------------------------------


def storage(story: Story, fault: Fault, index: int, rng: Random) -> Iterator[Line]:
    """A file server that does not answer: the client says so after its own timeout."""
    at = fault.at_s + rng.uniform(2.0, 60.0)
    names = (Kind.STORAGE_STALL,)
    if gathered.draw(story, "file system").random() < 0.6:
        yield Line(
            at_s=at, text="nfs: server nfs01.example.net not responding, still trying", names=names
        )
    else:
        client = f"ffff{rng.randrange(1 << 48):012x}"
        yield Line(
            at_s=at,
            text=f"Lustre: scratch-OST0003-osc-{client}: Connection to scratch-OST0003 (at 10.0.4.7@o2ib)"
            " was lost; in progress operations using this service will wait for recovery to complete",
            names=names,
        )
        yield Line(
            at_s=at + 11,
            text=f"LustreError: 11-0: scratch-MDT0000-mdc-{client}: operation mds_close to node"
            " 10.0.4.5@o2ib failed: rc = -107",
            names=names,
        )
    stuck = [rank for rank in fault.ranks if story.layout.node_index(rank) == index]
    for rank in stuck[:3]:
        blocked = fault.at_s + 122 + rng.uniform(0, 60)
        yield Line(
            at_s=blocked,
            text=f"INFO: task python3:{gathered.host_pid(story, rank)} blocked for more than 120 seconds.",
        )
        yield Line(
            at_s=blocked, text="      Tainted: P           OE     5.15.0-113-generic #123-Ubuntu"
        )
        yield Line(
            at_s=blocked,
            text='"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
        )


# --- Network ----------------------------------------------------------------------------------------


def _nic(story: Story, rank: int) -> tuple[str, str]:
    """(PCI address, interface) of the adapter on a rank's rail."""
    bus = NICS[story.layout.local_rank(rank) % len(NICS)]
    form = gathered.draw(story, "interface").choice(("ibp{}s0", "ens{}f0np0", "enp{}s0np0"))
    return f"0000:{bus}:00.0", form.format(int(bus, 16))


def nic_down(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    """The adapter of the guilty rank's rail: its cable, or its firmware."""
    address, interface = _nic(story, fault.ranks[0])
    head = f"mlx5_core {address}"
    names = (Kind.NETWORK,)
    if rng.random() < 0.6:
        cable = f"{head}: Port module event: module 0, Cable unplugged"
        yield Line(at_s=fault.at_s, text=cable, names=names)
    else:
        ill = "device's health compromised - reached miss count"
        yield Line(at_s=fault.at_s, text=f"{head}: poll_health:801:(pid 0): {ill}", names=names)
    yield Line(at_s=fault.at_s + 0.02, text=f"{head} {interface}: Link down", names=names)


def flapping(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    address, interface = _nic(story, fault.ranks[0])
    at = fault.at_s
    for _ in range(rng.randint(3, 7)):
        text = f"mlx5_core {address} {interface}: Link "
        yield Line(at_s=at, text=f"{text}down", names=(Kind.NETWORK,))
        at += rng.uniform(0.5, 6.0)
        yield Line(at_s=at, text=f"{text}up")
        at += rng.uniform(1.0, 15.0)


def unplugged(story: Story, fault: Fault, index: int, rng: Random) -> Iterator[Line]:
    """A switch went: all adapters of the node lose their link within a second."""
    for rank in story.layout.ranks_of(index):
        address, interface = _nic(story, rank)
        yield Line(
            at_s=fault.at_s + rng.uniform(0.0, 0.9),
            text=f"mlx5_core {address} {interface}: Link down",
            names=(Kind.NETWORK,),
        )


def slow_link(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    """A PCIe link that trained down, or that corrects errors all the time."""
    address, _ = _nic(story, fault.ranks[0])
    bridge = f"0000:{int(address[5:7], 16) - 2:02x}:01.0"
    names = (Kind.STRAGGLER, Kind.NETWORK, Kind.HARDWARE)
    if rng.random() < 0.5:
        speed = rng.choice(("31.504 Gb/s", "63.008 Gb/s"))
        text = (
            f"mlx5_core {address}: {speed} available PCIe bandwidth, limited by 8.0 GT/s PCIe"
            f" x{4 if speed[0] == '3' else 8} link at {bridge} (capable of 504.112 Gb/s with"
            " 32.0 GT/s PCIe x16 link)"
        )
        yield Line(at_s=fault.at_s - 0.1, text=text, names=names)
        return
    for i in range(rng.randint(3, 8)):
        at = fault.at_s + i * rng.uniform(0.3, 4.0)
        error = f"pcieport {bridge}: AER: Corrected error received: {address}"
        layer = "PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)"
        yield Line(at_s=at, text=error, names=names)
        yield Line(at_s=at, text=f"mlx5_core {address}: {layer}")


# --- The node ---------------------------------------------------------------------------------------


def last_words(fault: Fault, rng: Random) -> Iterator[Line]:
    """A machine check or a panic; nothing comes after."""
    at, names = fault.at_s - 0.3, (Kind.HARDWARE,)
    if rng.random() < 0.5:
        head = "mce: [Hardware Error]: "
        cpu = f"CPU {rng.randrange(128)}: Machine Check Exception: 5 Bank {rng.randrange(20)}"
        yield Line(at_s=at, text=f"{head}{cpu}: be00000000800400", names=names)
        yield Line(at_s=at, text=f"{head}Machine check: Processor context corrupt", names=names)
        reason = "Fatal machine check"
    else:
        address = f"ffff{rng.randrange(1 << 48):012x}"
        yield Line(at_s=at, text=f"BUG: unable to handle page fault for address: {address}")
        yield Line(at_s=at, text="#PF: supervisor read access in kernel mode")
        yield Line(at_s=at, text="Oops: 0000 [#1] SMP NOPTI")
        reason = "Fatal exception in interrupt"
    yield Line(at_s=at + 0.1, text=f"Kernel panic - not syncing: {reason}", names=names)


def hot_chassis(fault: Fault, rng: Random) -> Iterator[Line]:
    """The whole machine is too hot; the CPU says so, the GPU has no line for it."""
    cpu = rng.randrange(128)
    text = f"mce: CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = 1)"
    names = (Kind.STRAGGLER, Kind.HARDWARE)
    yield Line(at_s=fault.at_s - 1.0, text=text, names=names, loud=False)


def ordinary(story: Story, index: int, rng: Random) -> Iterator[Line]:
    """What every kernel says all day."""
    veth = f"veth{rng.randrange(1 << 28):07x}"
    interface = _nic(story, 0)
    texts = (
        f"eth2: renamed from {veth}",
        f"IPv6: ADDRCONF(NETDEV_CHANGE): {veth}: link becomes ready",
        "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
        "nvidia-uvm: Loaded the UVM driver, major device number 508.",
        f"mlx5_core {interface[0]} {interface[1]}: Link up",
        "FS-Cache: Netfs 'nfs' registered for caching",
        "nfs: server nfs01.example.net OK",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    )
    for text in rng.sample(texts, rng.randint(2, 4)):
        yield Line(at_s=-rng.uniform(4 * 3600, 2 * 86_400), text=text)

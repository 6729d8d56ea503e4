"""Hosts on one machine: network, mount and UTS namespaces of Linux, joined by a bridge.

A script calls enter() first. It runs the script again inside separate namespaces, where it is process 1: whatever it starts ends with it,
and nothing of the machine changes. Host(number) then has its own name, addresses, file systems and link.
"""
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
INSIDE = "TRAFO_TEST_NAMESPACES"
BRIDGE = "cluster"
NETWORK, NETWORK6 = "10.18.0.", "fd18::"


def enter(label):
    """Returns inside the namespaces. Elsewhere it ends the process: with SKIPPED where the system refuses them or has no ip."""
    if os.environ.get(INSIDE) and os.getpid() == 1:
        return
    unshare = ["unshare", *(["--map-root-user"] if os.geteuid() else []), *"--net --mount --uts --pid --fork --kill-child --mount-proc".split()]
    setup = ("ip link set lo up && ip link add name bridge1 type bridge && ip link add name link1 type veth peer name link2 && "
             "mount -t tmpfs none /mnt && hostname other && unshare --net --mount --uts true")
    try:
        tried = subprocess.run([*unshare, "sh", "-c", setup], text=True, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{label}: skipped: {error}")
        sys.exit(SKIPPED)
    if tried.returncode != 0:
        print(f"{label}: skipped: namespaces or a bridge cannot be made: {tried.stderr.strip()}")
        sys.exit(SKIPPED)
    os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


class Cluster:
    """`private`: a folder that is another, empty one on each host. `delay`: of a packet on each link, such as 1ms, where the kernel has netem.
    `aliases`: more names of hosts, with their numbers."""

    def __init__(self, hosts, scratch, private=None, delay="1ms", aliases=None):
        self.scratch = pathlib.Path(scratch)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{NETWORK}254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        self.names = {"localhost": ["127.0.0.1", "::1"], "control": [f"{NETWORK}254"]}
        for number in range(hosts):
            self.names |= {f"host{number}": [f"{NETWORK}{number + 1}"], f"host{number}-v6": [f"{NETWORK6}{number + 1}"]}
        self.names |= {name: self.names[f"host{number}"] for name, number in (aliases or {}).items()}
        run("mount", "--bind", self.names_file("control"), "/etc/hosts")
        run("hostname", "control")
        self.has_ipv6 = self.has_delay = True  # of all hosts
        self.hosts = [Host(self, number, private, delay) for number in range(hosts)]

    def names_file(self, of, own=None):
        """An /etc/hosts. Debian gives a host's own name a loopback address, and so does `own`."""
        names = {**self.names, **({of: [own]} if own else {})}
        path = self.scratch / f"{of}.names"
        path.write_text("".join(f"{address} {name}\n" for name, addresses in names.items() for address in addresses))
        return str(path)

    def __getitem__(self, number):
        return self.hosts[number]


class Host:
    def __init__(self, cluster, number, private, delay):
        self.name, self.address, self.address6 = f"host{number}", f"{NETWORK}{number + 1}", f"{NETWORK6}{number + 1}"
        self.number, self.link = number, f"link{number}"
        mount = f"mount --bind {cluster.names_file(self.name, '127.0.1.1')} /etc/hosts && " + (f"mount -t tmpfs {self.name} {private} && " if private else "")
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sh", "-c", f"hostname {self.name} && {mount}echo ready && exec sleep infinity"],
                                       stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"{self.name} cannot be made")
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.link, "master", BRIDGE, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        added = subprocess.run(self.command("ip", "address", "add", f"{self.address6}/64", "dev", "eth0", "nodad"), capture_output=True)
        cluster.has_ipv6 &= added.returncode == 0
        self.run("ip", "link", "set", "eth0", "up")
        slowed = subprocess.run(self.command("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", delay), capture_output=True)
        cluster.has_delay &= slowed.returncode == 0

    def command(self, *words, folder="/"):
        """A command that runs `words` on the host. The process that is started becomes the program."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "env", f"--chdir={folder}", *map(str, words)]

    def run(self, *words, folder="/"):
        return run(*self.command(*words, folder=folder))

    def path(self, path):
        """A path of the host, as others see it."""
        return pathlib.Path(f"/proc/{self.holder.pid}/root{path}")

    def set_link(self, state):
        run("ip", "link", "set", self.link, state)

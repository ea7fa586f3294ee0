"""What the Linux kernel does to hold a program: namespaces, Landlock, seccomp.

Loaded by ``child`` from its file, before any foreign code runs, under ``python -I -S``: standard library only. Each
function says which layer it put in place, or None where this kernel, or a container around us, does not permit it.
"""

import ctypes
import os
import platform
import struct
import sys

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET, _CLONE_THREAD = 0x20000000, 0x40000000, 0x00010000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2
_SIGKILL = 9

# linux/landlock.h. The system call numbers are the same on every architecture.
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_FS_EXECUTE, _FS_WRITE, _FS_READ_FILE, _FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_MAKE_CHAR, _FS_MAKE_BLOCK, _FS_TRUNCATE = 1 << 6, 1 << 11, 1 << 14

# linux/seccomp.h, linux/filter.h
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_EPERM, _ENOSYS = 1, 38

_CALLS = {
    "x86_64": (0xC000003E, {
        "socket": 41, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "ptrace": 101, "mount": 165,
        "tkill": 200, "tgkill": 234, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321, "execveat": 322, "userfaultfd": 323,
        "pidfd_send_signal": 424, "io_uring_setup": 425, "clone3": 435,
    }),
    "aarch64": (0xC00000B7, {
        "socket": 198, "clone": 220, "execve": 221, "kill": 129, "ptrace": 117, "mount": 40, "tkill": 130,
        "tgkill": 131,
        "keyctl": 219, "unshare": 97, "perf_event_open": 241, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "bpf": 280, "execveat": 281, "userfaultfd": 282, "pidfd_send_signal": 424,
        "io_uring_setup": 425, "clone3": 435,
    }),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """This process is killed when the one that started it ends."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def enter_namespaces(folder: str, folder_bytes: int) -> list[str]:
    """New user, network, process, IPC and mount namespaces; in the last, ``folder`` is an empty one of bounded size.

    The process namespace begins with the next fork. Raises: OSError if the kernel lets us begin and not finish, after
    which this process is of no use.
    """
    if sys.platform != "linux":
        return []
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWNS
    if _libc.unshare(flags) != 0:
        return []
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    layers = ["network namespace", "process namespace"]
    private = _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    options = f"size={folder_bytes},nr_inodes=4096,mode=700".encode()
    if private and _libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options) == 0:
        layers.append("bounded folder")
    return layers


def drop_capabilities() -> None:
    """No privilege is left, not even within the namespaces."""
    if sys.platform == "linux":
        _libc.capset(struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", *[0] * 6))


def restrict_files(readable: list[str], folder: str, *, execute: bool) -> str | None:
    """Landlock: reading below ``readable``, everything below ``folder``, nothing else; no TCP, no signals outwards.

    What is open already stays open.
    """
    if sys.platform != "linux":
        return None
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return None
    handled = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    attributes = struct.pack("<QQQ", handled, 0b11, 0b11)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        return None
    read = _FS_READ_FILE | _FS_READ_DIR | (_FS_EXECUTE if execute else 0)
    everything = handled & ~(_FS_MAKE_CHAR | _FS_MAKE_BLOCK | (0 if execute else _FS_EXECUTE))
    of_a_file = _FS_EXECUTE | _FS_WRITE | _FS_READ_FILE | _FS_TRUNCATE
    grants = [(path, read) for path in readable] + [(folder, everything)]
    grants += [(device, _FS_READ_FILE | _FS_WRITE) for device in ("/dev/null", "/dev/zero", "/dev/urandom")]
    for path, access in grants:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        granted = access & handled & (-1 if os.path.isdir(path) else of_a_file)
        _libc.syscall(_LANDLOCK_ADD, rules, 1, struct.pack("<Qi", granted, place), 0)
        os.close(place)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done = _libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return "Landlock" if done else None


def restrict_calls(*, processes: bool) -> str | None:
    """Seccomp: no sockets (a pair within the process is none), no other program's memory, no new namespaces.

    Unless ``processes``: no new processes or programs either (threads are let through), and signals to itself only.
    """
    known = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if known is None:
        return None
    architecture, numbers = known
    refused = ["socket", "ptrace", "mount", "keyctl", "unshare", "perf_event_open", "setns", "process_vm_readv",
               "process_vm_writev", "bpf", "userfaultfd", "io_uring_setup"]  # fmt: skip
    if not processes:
        refused += ["fork", "vfork", "execve", "execveat", "tkill", "pidfd_send_signal"]
    program = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        # The x32 numbers of x86-64 would lead around the table.
        (_JUMP_GREATER, 0, 1, 0x40000000),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    for name in refused:
        if name in numbers:
            program += [(_JUMP_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    if not processes:
        # The C library falls back to clone, whose flags can be read.
        program += [(_JUMP_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
        program += _unless_argument(numbers["clone"], _JUMP_SET, _CLONE_THREAD)
        for name in ("kill", "tgkill"):
            program += _unless_argument(numbers[name], _JUMP_EQUAL, os.getpid())
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return "seccomp" if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0 else None


def _unless_argument(number: int, test: int, value: int) -> list[tuple[int, int, int, int]]:
    """Refuses a call unless its first argument passes the test; loads nothing when it is another call."""
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, 16),
        (test, 1, 0, value),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]

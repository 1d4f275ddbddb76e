"""A filter of system calls for a sandbox, as a program that Linux runs (seccomp); `sandbox` hands it over.

What is refused needs no rights, and nothing in this course uses it. Each is a way past what is watched:
memory and messages that ranks could share unseen, looking into other processes, namespaces with rights of
their own, and parts of the kernel that are known for their holes.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(_ARCHITECTURES)
# Numbers by machine, in the order of MACHINES.
REFUSED = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
_SOCKET, _CLONE, _CLONE3, _PRCTL = (41, 198), (56, 220), (435, 435), (157, 167)
_SET_DUMPABLE = 4  # of prctl: hides from the watch what a process has opened
_NETLINK = 16
_NETLINK_ROUTE, _NETLINK_SOCK_DIAG = 0, 4  # addresses and connections; others pass messages between processes
_NEW_NAMESPACE = 0x7E020000  # all flags of clone that make one
_X32 = 0x40000000  # numbers from here on are another name for the same calls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF's instructions
_NUMBER, _ARCHITECTURE, _FIRST, _THIRD = 0, 4, 16, 32  # offsets in what the program sees of a call
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]  # operation, instructions to skip if true, if false, constant


def seccomp_filter(machine: str = platform.machine()) -> bytes:
    """The program for all processes of a sandbox on this machine.

    Raises:
        NotImplementedError: for a machine whose system calls are not known here.
    """
    which = _place(machine)
    rules = [
        *_if_equal(_CLONE3[which], [_fail(errno.ENOSYS)]),  # its flags cannot be read; libc then uses clone
        *_if_equal(_CLONE[which], _clone_without_namespaces()),
        *_if_equal(_SOCKET[which], _socket_of_a_counted_kind()),
        *_if_equal(_PRCTL[which], _prctl_that_hides_nothing()),
    ]
    for numbers in REFUSED.values():
        rules += _if_equal(numbers[which], [_fail(errno.EPERM)])
    return _program(machine, rules)


def no_sockets(machine: str = platform.machine()) -> bytes:
    """The program for those of its processes that need no way to any other."""
    return _program(machine, _if_equal(_SOCKET[_place(machine)], [_fail(errno.EACCES)]))


def _place(machine: str) -> int:
    if machine not in MACHINES:
        raise NotImplementedError(f"the sandbox knows {' and '.join(MACHINES)} machines, not {machine}")
    return MACHINES.index(machine)


def _program(machine: str, rules: list[Instruction]) -> bytes:
    program = [
        *_load(_ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _fail(errno.ENOSYS),
        *_load(_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _fail(errno.ENOSYS),
        *rules,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _clone_without_namespaces() -> list[Instruction]:
    return [*_load(_FIRST), (_ANY_BIT, 0, 1, _NEW_NAMESPACE), _fail(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]


def _prctl_that_hides_nothing() -> list[Instruction]:
    refuse = _if_equal(_SET_DUMPABLE, [_fail(errno.EPERM)])
    return [*_load(_FIRST), *refuse, (_RETURN, 0, 0, _ALLOW)]


def _socket_of_a_counted_kind() -> list[Instruction]:
    """IP, whose bytes are counted; what lists addresses and connections; no other way between processes."""
    allow = [(_RETURN, 0, 0, _ALLOW)]
    netlink = [
        *_load(_THIRD),
        *_if_equal(_NETLINK_ROUTE, allow),
        *_if_equal(_NETLINK_SOCK_DIAG, allow),
        _fail(errno.EAFNOSUPPORT),
    ]
    return [
        *_load(_FIRST),
        *_if_equal(socket.AF_INET, allow),
        *_if_equal(socket.AF_INET6, allow),
        *_if_equal(_NETLINK, netlink),
        _fail(errno.EAFNOSUPPORT),
    ]


def _load(offset: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _if_equal(value: int, then: list[Instruction]) -> list[Instruction]:
    return [(_EQUAL, 0, len(then), value), *then]


def _fail(number: int) -> Instruction:
    return _RETURN, 0, 0, _FAIL | number

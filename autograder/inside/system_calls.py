"""A filter of system calls for a sandbox, as a program that Linux runs (seccomp); `sandbox` hands it over.

The refused calls need no rights, and nothing in this course uses them. Each is a way past the watch:
memory and messages that ranks could share unseen, looking into other processes, namespaces with rights of
their own, the processors of other sandboxes, and parts of the kernel that are known for their holes.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterable

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(_ARCHITECTURES)
# Numbers by machine, in the order of MACHINES.
REFUSED = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # Without namespaces, numbers of what other programs of this user have made would do.
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_unlink": (241, 181),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),  # opens any process by its number, as the refused pidfd_open does
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),  # Linux counts these requests for the whole machine, where all can read it
    "memfd_secret": (447, 447),  # memory that is on no account
    "process_madvise": (440, 440),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "fanotify_init": (300, 262),
    "inotify_init": (253, None),  # of which Linux lets a user have 128, with all other programs of theirs
    "inotify_init1": (294, 26),
    "syslog": (103, 116),  # events of the machine, which many kernels tell everyone
    "sched_setaffinity": (203, 122),  # leads to the processors of submissions that are graded beside this one
}
# Refused to ranks besides: things that one process can change, and another one can see. None for a machine
# that has no such call.
REFUSED_TO_RANKS = {
    "socket": (41, 198),
    "bind": (49, 200),  # and these, since Gloo has opened a socket that listens
    "connect": (42, 203),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "file_setattr": (469, 469),
    "flock": (73, 32),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "pidfd_open": (434, 434),
    "futex_waitv": (449, 449),  # and three more that do what `_futex_of_its_own` refuses
    "futex_wake": (454, 454),
    "futex_wait": (455, 455),
    "futex_requeue": (456, 456),
    "openat2": (437, 437),  # its flags cannot be read
    "mbind": (237, 235),  # where memory is to lie: each process that shares it is told
}
# Cells may start sessions: those that load the extension start a process for ranks.
OF_SESSIONS = ("setpgid", "setsid")
# Ranks whose exercise is files may change them.
OF_FILES = ("flock", "truncate")
# And these, unless files outside of the sandbox are of the same user: Landlock knows no rule about them.
OF_OWNED_FILES = (
    *("utime", "utimes", "futimesat", "utimensat"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
)
# Refused in addition to ranks whose memory is measured: with these, they could keep data that is not counted.
REFUSED_WHERE_MEASURED = {
    "fork": (57, None),
    "vfork": (58, None),
    "memfd_create": (319, 279),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "socketpair": (53, 199),
    "epoll_create": (213, None),  # each entry has room for a number, and there may be millions
    "epoll_create1": (291, 20),
}
_SOCKET, _SOCKETPAIR, _CLONE, _CLONE3, _PRCTL = (41, 198), (53, 199), (56, 220), (435, 435), (157, 167)
_PRLIMIT, _FCNTL, _IOCTL = (302, 261), (72, 25), (16, 29)
_OPEN, _OPENAT, _CLOSE_RANGE = (2, None), (257, 56), (436, 436)
_SECCOMP = (317, 277)
_MMAP, _MADVISE = (9, 222), (28, 233)
_FALLOCATE = (285, 47)
_FUTEX = (202, 98)
_THREAD, _SAME_FILES = 0x10000, 0x400  # of clone: the child has the same memory, the same open files
_FILES_OF_ITS_OWN = 0x2  # of close_range: for this thread
_SHARED_MEMORY, _WITHOUT_FILE = 0x1, 0x20  # of mmap
_TO_BE_MERGED, _COLD, _SWAPPED_OUT = 12, 20, 21  # of madvise
_MERGES_ALL = 67  # of prctl
# Of fcntl: locks, leases, watching a folder, hints that a file keeps, delegations (from Linux 6.19 on).
_LOCKS = (6, 7, 37, 38)
_NOTES_ON_FILES = (1024, 1026, 1036, 1038, 1040)
# Of ioctl: whether a descriptor closes when a program begins, or waits; what there is to read; whether it is
# a terminal, and its size. All else is a device's or a file system's own, as are flags and versions of files.
_OF_DESCRIPTORS = (0x5451, 0x5450, 0x5421, 0x541B, 0x5401, 0x5413)
_DISCIPLINE_OF_TERMINAL = 0x5423  # of ioctl
_NEITHER_TO_READ_NOR_TO_WRITE = 3  # of open: a descriptor that Landlock lets pass, and that ioctl takes
_SET_DUMPABLE = 4  # of prctl: hides from the watch what a process has opened
_KIND_OF_SOCKET = 0xF  # of the second argument of socket and socketpair; the rest are flags
_INTERNET_PROTOCOLS = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)  # zero is the usual one of the two
_NETLINK = 16
_NETLINK_ROUTE, _NETLINK_SOCK_DIAG = 0, 4  # addresses and connections; others pass messages between processes
# Of futex: whether threads of this process alone can meet; its operation; to wait, in two ways.
_OF_ONE_PROCESS, _DOES, _WAITS = 0x80, 0x7F, (0, 9)
_NEW_NAMESPACE = 0x7E020000  # all flags of clone that make one
_X32 = 0x40000000  # numbers from here on are another name for the same calls

# BPF's instructions
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
# Offsets in what the program sees of a call.
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST, _SECOND, _THIRD, _FOURTH = 16, 24, 32, 40
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]  # operation, instructions to skip if true, if false, constant
_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)


def seccomp_filter(named_sockets: bool = False, on_disk: bool = False) -> bytes:
    """Return the program for all processes of a sandbox on this machine.

    Args:
        named_sockets: whether they may have Unix sockets, whose bytes are not counted: NCCL's ranks hand each
            other memory over them, and do not start without.
        on_disk: whether their folders are on the machine's disk. There they cannot have room without writing:
            Linux would give them all of it between two looks of the watch.

    Raises:
        NotImplementedError: for a machine whose system calls are not known here.
    """
    which = _place()
    rules = [
        *_if_equal(_CLONE3[which], [_fail(errno.ENOSYS)]),  # its flags cannot be read; libc then uses clone
        *_if_equal(_CLONE[which], _clone_in_sight()),
        *_if_equal(_CLOSE_RANGE[which], _refuse_bits(_THIRD, _FILES_OF_ITS_OWN)),
        *_if_equal(_SOCKET[which], _socket_of_a_counted_kind(named_sockets)),
        *_if_equal(_SOCKETPAIR[which], _socketpair_that_stays_one()),
        *_if_equal(_PRCTL[which], _prctl_that_hides_nothing()),
        *_if_equal(_IOCTL[which], _refuse_one_of(_SECOND, [_DISCIPLINE_OF_TERMINAL])),
    ]
    if on_disk:
        rules += _if_equal(_FALLOCATE[which], [_fail(errno.EOPNOTSUPP)])  # libc then writes
    for numbers in REFUSED.values():
        rules += _if_equal(numbers[which], [_fail(errno.EPERM)])
    return _program(rules)


def between_ranks(shares_files: bool, starts_sessions: bool = False, owns_others: bool = False) -> bytes:
    """Return the program for processes that are to have no way to any other.

    Args:
        shares_files: whether they may change files, and lock them.
        starts_sessions: whether they may start sessions, and groups of processes.
        owns_others: whether files outside of the sandbox are of the same user.
    """
    files = OF_FILES if owns_others else (*OF_FILES, *OF_OWNED_FILES)
    allowed = (*(files if shares_files else ()), *(OF_SESSIONS if starts_sessions else ()))
    which = _place()
    rules = [
        *_if_equal(_PRLIMIT[which], [*_load(_FIRST), *_if_equal(0, [_ALLOWED]), _fail(errno.EPERM)]),
        *_if_equal(
            _FCNTL[which], _refuse_one_of(_SECOND, _NOTES_ON_FILES + (() if shares_files else _LOCKS))
        ),
        *_if_equal(_IOCTL[which], _refuse_all_but(_SECOND, _OF_DESCRIPTORS)),
        *_if_equal(_OPENAT[which], _open_to_read_or_to_write(_THIRD)),
    ]
    rules += _if_equal(_OPEN[which], _open_to_read_or_to_write(_SECOND))
    if not shares_files:
        rules += _if_equal(_FUTEX[which], _futex_of_its_own())
    for name, numbers in REFUSED_TO_RANKS.items():
        if name not in allowed:
            rules += _if_equal(numbers[which], [_fail(errno.EACCES)])
    return _program(rules)


def to_filter() -> int:
    """Return the number of the system call that takes a filter for all threads of a process."""
    return _SECCOMP[_place()]


def in_sight() -> bytes:
    """Return the program for those whose memory is measured: all that they keep is counted as theirs."""
    which = _place()
    rules = [
        *_if_equal(_CLONE[which], _clone_a_thread()),
        *_if_equal(_MMAP[which], _mmap_own_memory()),
        *_if_equal(_MADVISE[which], _refuse_one_of(_THIRD, (_TO_BE_MERGED, _COLD, _SWAPPED_OUT))),
        *_if_equal(_PRCTL[which], _refuse_one_of(_FIRST, (_MERGES_ALL,))),
    ]
    for numbers in REFUSED_WHERE_MEASURED.values():
        rules += _if_equal(numbers[which], [_fail(errno.EACCES)])
    return _program(rules)


def _place() -> int:
    """Return where the numbers of this machine stand among those of several."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise NotImplementedError(f"the sandbox knows {' and '.join(MACHINES)} machines, not {machine}")
    return MACHINES.index(machine)


def _program(rules: list[Instruction]) -> bytes:
    program = [
        *_load(_ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]),
        _fail(errno.ENOSYS),
        *_load(_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _fail(errno.ENOSYS),
        *rules,
        _ALLOWED,
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refuse_one_of(argument: int, values: Iterable[int]) -> list[Instruction]:
    """Refuse values of an argument that says what is to be done."""
    refused = [each for value in values for each in _if_equal(value, [_fail(errno.EACCES)])]
    return [*_load(argument), *refused, _ALLOWED]


def _refuse_all_but(argument: int, values: Iterable[int]) -> list[Instruction]:
    allowed = [each for value in values for each in _if_equal(value, [_ALLOWED])]
    return [*_load(argument), *allowed, _fail(errno.EACCES)]


def _open_to_read_or_to_write(flags: int) -> list[Instruction]:
    neither = _NEITHER_TO_READ_NOR_TO_WRITE
    return [*_load(flags), (_AND, 0, 0, neither), *_if_equal(neither, [_fail(errno.EACCES)]), _ALLOWED]


def _futex_of_its_own() -> list[Instruction]:
    """Refuse to wait for threads of other processes, and to wake them: at a page of a file they would meet.

    A thread that joins another one waits in the same manner. It is told to look again, and goes on.
    """
    return [
        *_load(_SECOND),
        (_ANY_BIT, 0, 1, _OF_ONE_PROCESS),
        _ALLOWED,
        (_AND, 0, 0, _DOES),
        *(each for wait in _WAITS for each in _if_equal(wait, [_fail(errno.EAGAIN)])),
        _fail(errno.EACCES),
    ]


def _clone_a_thread() -> list[Instruction]:
    return [*_load(_FIRST), (_ANY_BIT, 1, 0, _THREAD), _fail(errno.EACCES), _ALLOWED]


def _mmap_own_memory() -> list[Instruction]:
    shared = [(_ANY_BIT, 0, 1, _WITHOUT_FILE), _fail(errno.EACCES), _ALLOWED]
    return [*_load(_FOURTH), (_ANY_BIT, 1, 0, _SHARED_MEMORY), _ALLOWED, *shared]


def _refuse_bits(argument: int, bits: int) -> list[Instruction]:
    return [*_load(argument), (_ANY_BIT, 0, 1, bits), _fail(errno.EPERM), _ALLOWED]


def _clone_in_sight() -> list[Instruction]:
    """Refuse namespaces, and threads with open files of their own, which the watch does not see."""
    apart = [(_ANY_BIT, 0, 2, _THREAD), (_ANY_BIT, 1, 0, _SAME_FILES), _fail(errno.EPERM)]
    return [*_load(_FIRST), (_ANY_BIT, 0, 1, _NEW_NAMESPACE), _fail(errno.EPERM), *apart, _ALLOWED]


def _prctl_that_hides_nothing() -> list[Instruction]:
    refuse = _if_equal(_SET_DUMPABLE, [_fail(errno.EPERM)])
    return [*_load(_FIRST), *refuse, _ALLOWED]


def _socket_of_a_counted_kind(named_sockets: bool) -> list[Instruction]:
    """Allow TCP and UDP, whose bytes are counted, and what lists addresses and connections; Unix if asked.

    For other protocols, and for disciplines of terminals, Linux loads parts of itself that few look after.
    """
    allow = [_ALLOWED]
    protocols = [each for protocol in _INTERNET_PROTOCOLS for each in _if_equal(protocol, allow)]
    protocols = [*_load(_THIRD), *protocols, _fail(errno.EPROTONOSUPPORT)]
    kinds = [each for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM) for each in _if_equal(kind, protocols)]
    internet = [*_load(_SECOND), (_AND, 0, 0, _KIND_OF_SOCKET), *kinds, _fail(errno.ESOCKTNOSUPPORT)]
    netlink = [
        *_load(_THIRD),
        *_if_equal(_NETLINK_ROUTE, allow),
        *_if_equal(_NETLINK_SOCK_DIAG, allow),
        _fail(errno.EAFNOSUPPORT),
    ]
    return [
        *_load(_FIRST),
        *_if_equal(socket.AF_INET, internet),
        *_if_equal(socket.AF_INET6, internet),
        *_if_equal(_NETLINK, netlink),
        *(_if_equal(socket.AF_UNIX, allow) if named_sockets else ()),
        _fail(errno.EAFNOSUPPORT),
    ]


def _socketpair_that_stays_one() -> list[Instruction]:
    """Allow pairs of connected sockets: others can be given a name, and send to any that has one."""
    connected = [
        each for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET) for each in _if_equal(kind, [_ALLOWED])
    ]
    kinds = [*_load(_SECOND), (_AND, 0, 0, _KIND_OF_SOCKET), *connected, _fail(errno.EPROTONOSUPPORT)]
    return [*_load(_FIRST), *_if_equal(socket.AF_UNIX, kinds), _fail(errno.EAFNOSUPPORT)]


def _load(offset: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _if_equal(value: int | None, then: list[Instruction]) -> list[Instruction]:
    """Return the instructions for one value; none for a call that this machine does not have."""
    return [] if value is None else [(_EQUAL, 0, len(then), value), *then]


def _fail(number: int) -> Instruction:
    return _RETURN, 0, 0, _FAIL | number

"""Runs a command with the rights and the refusals that Docker has by default: no namespaces, no mounts.

    python tests/docker_default.py autograder grade 02_collectives

For root only. A container's own file system and processes are missing here.
"""

import ctypes
import errno
import os
import sys

from autograder.inside import isolation, system_calls

NO_NEW_PRIVILEGES = 38  # of prctl
NO_MORE = 24  # of prctl: a right that no program gets any more
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot,
# mknod, audit_write, setfcap
RIGHTS = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
REFUSED = {"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39)}


def run(command: list[str]) -> None:
    """Become this command."""
    which = system_calls._place()
    fail = system_calls._fail(errno.EPERM)
    rules = [rule for numbers in REFUSED.values() for rule in system_calls._if_equal(numbers[which], [fail])]
    rules += system_calls._if_equal(system_calls._CLONE3[which], [system_calls._fail(errno.ENOSYS)])
    no_namespaces = system_calls._refuse_bits(system_calls._FIRST, system_calls._NEW_NAMESPACE)
    rules += system_calls._if_equal(system_calls._CLONE[which], no_namespaces)
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # without which a filter takes rights
    isolation.refuse(system_calls._program(rules))
    for right in set(range(41)) - RIGHTS:
        ctypes.CDLL(None).prctl(NO_MORE, right, 0, 0, 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    run(sys.argv[1:])

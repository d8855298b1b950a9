"""Starts one program as a child that does not outlive us and, under root, is not root.

`python launch.py PARENT_PID UID GID PROGRAM ARGUMENT…` turns itself into PROGRAM. It runs between
fork and exec in an interpreter of its own, because `preexec_fn` is unsafe beside threads. It
imports the standard library alone and is run by path: the unprivileged user may not be able to
read the folders of ours.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become somebody else, die with the parent, and turn into the program."""
    parent, uid, gid = (int(word) for word in sys.argv[1:4])
    command = sys.argv[4:]
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After setuid, which would clear it. SIGQUIT: Postgres drops everything and leaves.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:
            sys.exit("the parent was gone before its child began")
    os.execv(command[0], command)  # noqa: S606 - that no shell stands between is the point


if __name__ == "__main__":
    main()

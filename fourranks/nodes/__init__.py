"""Worlds over more than one machine: how ranks on other nodes become ranks of this notebook.

    choice            where a world's ranks start: on this machine, on named nodes, on those of a Ray cluster
    names             the nodes that a reader asks for
    launchers         the command that starts a program on one: ssh, srun, another one
    cluster           where the ranks of a world go, and what they are told of each other
    remote_zygote     the handle of a node's warm process, used as that of this machine's own
      relay             stands in for that process on this machine: a process beside the notebook
        streams           all that goes over the one connection between the two
          frames            that connection
      agent             the other end, on the node, beside the node's own zygote
    on_ray            the same for a Ray cluster, with `ray_driver` as the process that talks to it
    messages          what these say to each other
    versions          what must be the same at both ends
    addresses         the interface by which a node's ranks reach the others
    environment       the variables that travel
    clock             the difference between two machines' clocks

Nothing here listens. The connection is the standard input and output of the launcher's command, so ssh says
whom it trusts, and encrypts.
"""

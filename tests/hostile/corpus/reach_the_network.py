"""Connects to the machine's own ports, to other machines, to its name server and to its hypervisor."""

import socket

PORTS = [*range(8880, 8900), 22, 80, 631, 5432, 8000, 11434]
for host in ("127.0.0.1", "127.0.0.53", "10.0.0.1", "172.17.0.1", "192.0.2.1", "::1"):
    for port in PORTS:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family) as one:
                one.settimeout(0.05)
                if one.connect_ex((host, port)) == 0:
                    print("got", host, port)
        except OSError:  # not even a socket
            pass
for family, address in (
    (40, (2, 1024)),
    (socket.AF_UNIX, "\0docker"),
    (17, ("lo", 0)),
    (socket.AF_UNIX, "/run/docker.sock"),
):
    try:
        with socket.socket(family) as one:
            one.connect(address)
        print("got", address)
    except OSError:
        pass
try:
    print("got", socket.gethostbyname("example.com"))
except OSError:
    pass

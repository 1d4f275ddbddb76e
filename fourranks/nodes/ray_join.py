"""Joins a Ray cluster, if not everybody can use it. Only processes that talk to Ray import this."""

from __future__ import annotations

import logging
import os
import socket

import ray
from ray._private.authentication import authentication_utils  # Ray 2.60 has no other way

from ..errors import StartError

PATIENCE_TO_CONNECT = 10.0
LONGEST_ERROR = 500  # characters
_NONE_HERE = "Could not find any running Ray instance"  # what Ray says where "auto" finds none
_ANOTHER = "Something listens there: is the token the cluster's, and are Ray and Python of its versions? "
GIVES = "docs/clusters.md says how to start a cluster."


def join() -> None:
    """Connect to the cluster that RAY_ADDRESS names, or to which this machine belongs.

    Raises:
        StartError: there is none, or everybody could use it.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of what is to change
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        _require_listener(address)
    except OSError as error:
        raise _unusable(address, error) from None
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ray.exceptions.RayError, OSError, RuntimeError) as error:
        raise _unusable(address, error, "" if _NONE_HERE in str(error) else _ANOTHER) from None
    except ValueError as error:  # the address is none
        raise _unusable(address, error) from None
    if not authentication_utils.is_token_auth_enabled():
        ray.shutdown()
        raise StartError(
            "The cluster requires no token: anyone who reaches its ports can run code on it, with your "
            f"rights. Start all of it, and this process, with RAY_AUTH_MODE=token. {GIVES}"
        )


def _unusable(address: str, error: Exception, advice: str = "") -> StartError:
    said = " ".join(str(error).split())[:LONGEST_ERROR].rstrip(".")
    return StartError(f"No Ray cluster can be used at address {address}: {said}. {advice}{GIVES}")


def _require_listener(address: str) -> None:
    """Require that something listens at HOST:PORT; Ray itself would try for minutes.

    Raises:
        OSError: nothing does.
    """
    host, _, port = address.rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.removeprefix("ray://"), int(port)), PATIENCE_TO_CONNECT).close()

"""Makes its functions from text, and modules by name, as configuration files do."""

import importlib
import types

CONFIG = {"module": "torch.distributed", "send": "isend", "receive": "irecv"}
library = importlib.import_module(CONFIG["module"])
helpers = types.ModuleType("helpers")
exec("def both(first, second):\n    first.wait()\n    second.wait()", helpers.__dict__)


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    start = eval(
        "lambda what, buffer, peer: getattr(library, config[what])(buffer, peer)",
        {"library": library, "config": CONFIG},
    )
    helpers.both(start("send", tensor, peer), start("receive", received, peer))
    return received

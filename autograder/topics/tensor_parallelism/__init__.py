"""Topic 06: layers and losses cut across ranks."""

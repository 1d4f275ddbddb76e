"""Topic 01: estimates of time and traffic, and the links of a machine."""

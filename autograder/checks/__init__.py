"""The checks that test cells call, one module for each assignment."""

"""What people look at while they work with ranks. The views read recorded facts and change nothing."""

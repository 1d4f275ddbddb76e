"""Where students' code runs when it is graded: `remote` asks from outside, `interpreter` answers."""

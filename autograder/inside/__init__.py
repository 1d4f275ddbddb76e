"""The course's own code in the sandbox, beside a student's: nothing here decides about points."""

"""What runs in the sandbox beside a student's code: nothing here decides about points."""
